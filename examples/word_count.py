"""Word count, exact under any number of worker deaths.

    squall run examples/word_count.py --workers 2 -- some.txt other.txt
    squall run examples/word_count.py --workers 2 -- --feed FEED --out RESULT

::

    lines ──local_or_shuffle──► split ──fields(word)──► count ──totals──► sink

At least once means that a line may be processed twice. The counts are exact all the same, because every step with state
stores it before it acks, and recognises tuples that it has seen (word_count_by_batch.py is the same by batches):

* `lines` is a `FeedSpout`. It numbers each line (its origin), and says below which number no line comes again.
* `split` appends a row for each line to the ledger in RESULT before it acks the line.
* `count` writes its totals to its state directory, emits them anchored to the counted words, and only then acks those
  words. It remembers which words of which lines it has counted, of lines that may come again.
* `sink` appends totals to RESULT before it acks. Totals only grow, so the largest is the count.

RESULT is emptied first, but with `--keep`: give it to a run that may go on later (`--on spark --checkpoint DIR`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from squall import (
    Bolt,
    BoltCollector,
    FeedSpout,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    UsageError,
)

HOLD_TUPLES = 2048
"""Tuples that a bolt holds before it writes and acks them: one write for many."""
TICK_SECS = 0.01
"""Time after which it does so in any case."""


class Split(Bolt):
    """Splits lines into words, and writes a row of the ledger for each line."""

    outputs = ("word", "origin", "position")

    def __init__(self, out: str | None) -> None:
        self.out = out

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.ledger = self.out and WholeLines(Path(self.out, "ledger"), context.task_index)
        self.rows: list[str] = []
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)
        if tup.is_tick:
            self.write()
            return
        origin, partition, offset, text = tup.values
        emit, words = self.collector.emit, text.split()
        for position, word in enumerate(words):
            emit((word, origin, position), anchors=tup)
        self.rows.append(f'{{"partition": {partition}, "offset": {offset}, "words": {len(words)}}}\n')
        if not self.ledger or len(self.held) >= HOLD_TUPLES:
            self.write()

    def write(self) -> None:
        if self.ledger:
            self.ledger.append(self.rows)
        for tup in self.held:
            self.collector.ack(tup)
        self.rows, self.held = [], []

    def cleanup(self) -> None:
        if self.ledger:
            self.ledger.close()


class Journal:
    """An append-only file of pickled records. A record torn by a death is cut off at the next start."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def records(self) -> Iterator[Any]:
        with os.fdopen(os.dup(self.fd), "rb") as file:
            file.seek(0)
            good = 0
            with contextlib.suppress(EOFError, pickle.UnpicklingError):
                while True:
                    record = pickle.load(file)
                    good = file.tell()
                    yield record
        os.ftruncate(self.fd, good)

    def append(self, record: Any) -> None:
        _write(self.fd, pickle.dumps(record, 5))

    def close(self) -> None:
        os.close(self.fd)


Origin = tuple[int, int, int]
"""Of a line: the life of the spout, its number in that life, and the number below which no line comes again."""


class Counted:
    """The words that a task has counted, in its state directory."""

    def __init__(self, directory: str) -> None:
        self.counts: dict[str, int] = {}
        self.seen: defaultdict[int, dict[int, int]] = defaultdict(dict)
        """Life of the spout -> number of a line -> the positions of its words that are counted, as bits."""
        self.floors: defaultdict[int, int] = defaultdict(int)
        self.journal = Journal(Path(directory) / "journal")
        for totals, fresh, floors in self.journal.records():
            self.counts.update(totals)
            self.floors.update(floors)
            for life, lines in fresh.items():
                self.seen[life].update(lines)
            self.forget_settled(fresh)

    def add(self, words: Iterable[tuple[str, Origin, int]]) -> dict[str, int]:
        """Count words, each with its line and position, unless they are counted; the totals, which are stored."""
        counts = self.counts
        fresh: defaultdict[int, dict[int, int]] = defaultdict(dict)
        # Also of words that were counted before a death: the sink may not have had their totals.
        totals: dict[str, int] = {}
        last = None
        for word, origin, position in words:
            if origin is not last:
                last = life, line, floor = origin
                seen, new = self.seen[life], fresh[life]
                self.floors[life] = max(self.floors[life], floor)
                positions, is_settled = seen.get(line, 0), line < self.floors[life]
            bit = 1 << position
            if not (positions & bit or is_settled):
                positions |= bit
                seen[line] = new[line] = positions
                counts[word] = counts.get(word, 0) + 1
            totals[word] = counts[word]
        self.journal.append((totals, dict(fresh), {life: self.floors[life] for life in fresh}))
        self.forget_settled(fresh)
        return totals

    def forget_settled(self, lives: Iterable[int]) -> None:
        """Forget lines that never come again. They lie in the order of counting, which is nearly that of numbers."""
        for life in lives:
            seen, floor = self.seen[life], self.floors[life]
            for line in list(takewhile(lambda line, floor=floor: line < floor, seen)):
                del seen[line]


class Count(Bolt):
    """Counts words; writes, emits and acks them in bulk."""

    outputs = {"totals": ("totals",)}

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.held: list[Tuple] = []
        self.counted = Counted(context.state_dir)

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)
        if tup.is_tick or len(self.held) >= HOLD_TUPLES:
            self.commit()

    def commit(self) -> None:
        words = [tup for tup in self.held if not tup.is_tick]
        if words:
            totals = self.counted.add(tup.values for tup in words)
            self.collector.emit((totals,), anchors=words, stream="totals")
        for tup in self.held:
            self.collector.ack(tup)
        self.held = []

    def cleanup(self) -> None:
        self.counted.journal.close()


class Sink(Bolt):
    """Appends totals to RESULT before it acks them; without RESULT, prints the most common words."""

    def __init__(self, out: str | None) -> None:
        self.out = out

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.totals: Counter[str] = Counter()
        self.file = self.out and WholeLines(Path(self.out, "counts"), context.task_index)

    def execute(self, tup: Tuple) -> None:
        if self.file:
            self.file.append(f'{{"word": {json.dumps(word)}, "count": {count}}}\n' for word, count in tup[0].items())
        else:
            self.totals |= tup[0]
        self.collector.ack(tup)

    def cleanup(self) -> None:
        if self.file:
            self.file.close()
        else:
            print_commonest(self.totals)


def print_commonest(totals: Counter[str]) -> None:
    print(f"{sum(totals.values()):,} words, {len(totals):,} different; the commonest:")
    for word, count in totals.most_common(10):
        print(f"{count:>9,}  {word}")


class WholeLines:
    """The file of a task in a folder of RESULT. A last line torn by a death is cut off at the next start."""

    def __init__(self, folder: Path, task: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"part-{task:05d}.jsonl"
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        size = os.fstat(self.fd).st_size
        data = os.pread(self.fd, 1 << 20, max(0, size - (1 << 20)))
        os.ftruncate(self.fd, size - len(data) + data.rfind(b"\n") + 1)

    def append(self, lines: Iterable[str]) -> None:
        _write(self.fd, "".join(lines).encode())

    def close(self) -> None:
        os.close(self.fd)


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def counts(args: list[str]) -> dict[str, int]:
    """What --out holds: for `squall chaos --result`."""
    totals: dict[str, int] = {}
    for path in Path(_parsed(args).out, "counts").glob("part-*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            totals[row["word"]] = max(row["count"], totals.get(row["word"], 0))
    return totals


def _result(out: str, keep: bool) -> str:
    """Make the RESULT directory: empty, or with what an earlier run wrote. Refuse one with anybody else's files."""
    path = Path(out)
    ours = {"counts", "ledger"}
    if path.exists() and not path.is_dir():
        raise UsageError(f"--out {out} is not a directory")
    others = sorted(entry.name for entry in path.iterdir() if entry.name not in ours) if path.exists() else []
    if others:
        raise UsageError(f"--out {out} holds {others[0]!r}, which is no result of word_count; choose another directory")
    for kind in ours:
        for file in () if keep else (path / kind).glob("part-*.jsonl"):
            file.unlink()
        (path / kind).mkdir(parents=True, exist_ok=True)
    return str(path.resolve())


def _parsed(args: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="word_count.py", description="Count the words of text files or of a feed.")
    parser.add_argument("files", nargs="*", metavar="FILE", help="text files")
    parser.add_argument("--feed", help="a feed made by squall prepare, in place of files")
    parser.add_argument("--out", help="directory for counts and ledger (see check_word_count.py)")
    parser.add_argument("--keep", action="store_true", help="add to what --out holds: for a run that may go on")
    parser.add_argument("--parallelism", type=int, default=2, help="executors per component (default 2)")
    return parser.parse_args(args)


def asked(args: list[str]) -> tuple[FeedSpout, str | None, int]:
    """What the ARGS ask for: the lines, RESULT, and the executors of each component."""
    options = _parsed(args)
    if bool(options.files) == bool(options.feed):
        raise UsageError("word_count.py needs text files or --feed FEED, one of them; e.g. -- README.md")
    lines = FeedSpout(options.feed or options.files, ("partition", "offset", "text"), with_origin=True)
    return lines, _result(options.out, options.keep) if options.out else None, options.parallelism


def topology(args: list[str]) -> Topology:
    lines, out, n = asked(args)
    builder = TopologyBuilder()
    builder.set_spout("lines", lines, parallelism=n)
    split = builder.set_bolt("split", Split(out), parallelism=n).local_or_shuffle_grouping("lines")
    count = builder.set_bolt("count", Count(), parallelism=n).fields_grouping("split", "word")
    for holding in (split, count):
        holding.set_config(tick_tuple_freq_secs=TICK_SECS)
    builder.set_bolt("sink", Sink(out)).global_grouping("count", stream="totals")
    return builder.build()
