"""Word count, exact under any number of worker deaths.

    squall run examples/word_count.py --workers 2 -- some.txt other.txt
    squall run examples/word_count.py --workers 2 -- --feed FEED --out RESULT

::

    lines ──local_or_shuffle──► split ──fields(word)──► count ──totals──► sink
                                  └───────────────lines──────────────────► sink

At least once means that a line may be processed twice. The counts are exact all the same, because every step with state
stores it before it acks, and recognises tuples that it has seen:

** `lines` reads from a position stored in its state directory: the acked prefix of each partition.
* `count` writes its totals to its state directory, emits them anchored to the counted words, and only then acks those
  words. It remembers which words of which lines it has counted, above the prefix that is never read again.
* `sink` appends totals and the per-line ledger to RESULT before it acks. Totals only grow, so the largest is the count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from squall import (
    AckedPrefix,
    BasicBolt,
    BasicCollector,
    Bolt,
    BoltCollector,
    ReplayingSpout,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    UsageError,
)

HOLD_TUPLES = 4096
"""Words that `count` holds before it writes and acks them: one write for many."""
MAX_PENDING = 16_384
"""Most open lines of a spout task: many, as `count` and `sink` hold their input for up to TICK_SECS each."""
TICK_SECS = 0.05
COMMIT_SECS = 0.1


class Lines(ReplayingSpout):
    """Emits the lines of a feed, or of text files. Message id: (partition, offset)."""

    outputs = ("origin", "text")

    def __init__(self, feed: str | None, files: list[str]) -> None:
        self.feed = feed
        self.files = files

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.position_file = Path(context.state_dir) / "positions.json"
        committed = json.loads(self.position_file.read_text()) if self.position_file.exists() else {}
        tasks = len(context.component_tasks(context.component_id))
        self.prefixes = {
            partition: AckedPrefix(committed.get(str(partition), 0))
            for partition in self.partitions()
            if partition % tasks == context.task_index
        }
        # From the position file: a line below is never read again.
        self.floors = {partition: prefix.committable for partition, prefix in self.prefixes.items()}
        self.committed_at = time.monotonic()

    def partitions(self) -> list[int]:
        if self.feed is None:
            return list(range(len(self.files)))
        from squall.pipeline.feed import Feed

        return Feed.open(self.feed).partitions

    def read(self) -> Iterator[tuple[Any, Any]]:
        for partition, prefix in self.prefixes.items():
            for offset, text in self.lines_of(partition, prefix.committable):
                yield (partition, offset), ((partition, offset, self.floors[partition]), text)

    def lines_of(self, partition: int, start: int) -> Iterator[tuple[int, str]]:
        if self.feed is None:
            with open(self.files[partition], "rb") as file:
                for offset, line in enumerate(file):
                    if offset >= start:
                        yield offset, line.rstrip(b"\r\n").decode("utf-8", "replace")
            return
        from squall.pipeline.feed import Feed

        for chunk in Feed.open(self.feed).read(partition, start):
            for offset, _, _, text in chunk:
                yield offset, text

    def next_tuple(self) -> None:
        super().next_tuple()
        if self.exhausted:
            self.commit()

    def ack(self, message_id: tuple[int, int]) -> None:
        super().ack(message_id)
        partition, offset = message_id
        self.prefixes[partition].ack(offset)
        if time.monotonic() - self.committed_at > COMMIT_SECS:
            self.commit()

    def commit(self) -> None:
        positions = {partition: prefix.committable for partition, prefix in self.prefixes.items()}
        self.committed_at = time.monotonic()
        if positions == self.floors:
            return
        temporary = self.position_file.with_suffix(".new")
        temporary.write_text(json.dumps(positions))
        os.replace(temporary, self.position_file)
        self.floors = positions


class Split(BasicBolt):
    """Splits a line into its words, and emits one row for the ledger."""

    outputs = {"default": ("word", "origin", "position"), "lines": ("partition", "offset", "words")}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        origin, text = tup.values
        emit = collector.emit
        position = -1
        for position, word in enumerate(text.split()):
            emit((word, origin, position))
        emit((origin[0], origin[1], position + 1), stream="lines")


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
        data = pickle.dumps(record, 5)
        while data:
            data = data[os.write(self.fd, data) :]

    def close(self) -> None:
        os.close(self.fd)


class Count(Bolt):
    """Counts words; writes, emits and acks them in bulk."""

    outputs = {"totals": ("totals",)}

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.counts: dict[str, int] = {}
        self.seen: dict[tuple[int, int], int] = {}
        self.floors: dict[int, int] = {}
        self.held: list[Tuple] = []
        self.fresh: dict[tuple[int, int], int] = {}
        self.touched: set[str] = set()
        self.journal = Journal(Path(context.state_dir) / "journal")
        for totals, fresh, floors in self.journal.records():
            self.counts.update(totals)
            for line, words in fresh.items():
                self.seen[line] = self.seen.get(line, 0) | words
            self.floors.update(floors)
        self.forget_settled()

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            self.commit()
            self.collector.ack(tup)
            return
        word, (partition, offset, floor), position = tup.values
        line, bit = (partition, offset), 1 << position
        seen = self.seen.get(line, 0)
        if not seen & bit and offset >= self.floors.get(partition, 0):
            self.seen[line] = seen | bit
            self.fresh[line] = self.fresh.get(line, 0) | bit
            self.counts[word] = self.counts.get(word, 0) + 1
        if floor > self.floors.get(partition, 0):
            self.floors[partition] = floor
        # Emit a word counted before a death again: its total may not have reached the sink.
        self.touched.add(word)
        self.held.append(tup)
        if len(self.held) >= HOLD_TUPLES:
            self.commit()

    def commit(self) -> None:
        if not self.held:
            return
        totals = {word: self.counts[word] for word in self.touched}
        self.journal.append((totals, self.fresh, self.floors))
        self.collector.emit((totals,), anchors=self.held, stream="totals")
        for tup in self.held:
            self.collector.ack(tup)
        self.held, self.fresh, self.touched = [], {}, set()
        self.forget_settled()

    def forget_settled(self) -> None:
        """Forget lines below the floor: they are acked for good and never come again."""
        settled = [line for line in self.seen if line[1] < self.floors.get(line[0], 0)]
        for line in settled:
            del self.seen[line]

    def cleanup(self) -> None:
        self.journal.close()


class Sink(Bolt):
    """Appends totals and ledger rows to RESULT before it acks; without RESULT, prints the most common words."""

    def __init__(self, out: str | None) -> None:
        self.out = out

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.totals: Counter[str] = Counter()
        self.held: list[Tuple] = []
        self.files = {}
        if self.out is not None:
            for kind in ("counts", "ledger"):
                self.files[kind] = _open_whole_lines(Path(self.out) / kind / f"part-{context.task_index:05d}.jsonl")

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)
        if tup.is_tick or len(self.held) >= HOLD_TUPLES:
            self.write()

    def write(self) -> None:
        ledger = []
        totals: dict[str, int] = {}
        for tup in self.held:
            if tup.source_stream == "totals":
                for word, count in tup["totals"].items():
                    totals[word] = max(count, totals.get(word, 0))
            elif tup.source_stream == "lines":
                ledger.append(dict(zip(tup.fields, tup.values, strict=True)))
        if self.out is None:
            for word, count in totals.items():
                self.totals[word] = max(count, self.totals[word])
        else:
            _append(self.files["counts"], [{"word": word, "count": count} for word, count in totals.items()])
            _append(self.files["ledger"], ledger)
        for tup in self.held:
            self.collector.ack(tup)
        self.held = []

    def cleanup(self) -> None:
        if self.out is None:
            print(f"{sum(self.totals.values()):,} words, {len(self.totals):,} different; the commonest:")
            for word, count in self.totals.most_common(10):
                print(f"{count:>9,}  {word}")
        for fd in self.files.values():
            os.close(fd)


def _open_whole_lines(path: Path) -> int:
    """Open for appending, and cut off a last line torn by a death."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    data = os.pread(fd, 1 << 20, max(0, os.fstat(fd).st_size - (1 << 20)))
    os.ftruncate(fd, os.fstat(fd).st_size - len(data) + data.rfind(b"\n") + 1)
    return fd


def _append(fd: int, rows: list[dict[str, Any]]) -> None:
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    while data:
        data = data[os.write(fd, data) :]


def _fresh_result(out: str) -> str:
    """Make an empty RESULT directory: remove an earlier run's files, refuse any others."""
    path = Path(out)
    ours = {"counts", "ledger"}
    if path.exists() and not path.is_dir():
        raise UsageError(f"--out {out} is not a directory")
    others = sorted(entry.name for entry in path.iterdir() if entry.name not in ours) if path.exists() else []
    if others:
        raise UsageError(f"--out {out} holds {others[0]!r}, which is no result of word_count; choose another directory")
    for kind in ours:
        for file in (path / kind).glob("part-*.jsonl"):
            file.unlink()
        (path / kind).mkdir(parents=True, exist_ok=True)
    return str(path.resolve())


def topology(args: list[str]) -> Topology:
    parser = argparse.ArgumentParser(prog="word_count.py", description="Count the words of text files or of a feed.")
    parser.add_argument("files", nargs="*", metavar="FILE", help="text files")
    parser.add_argument("--feed", help="a feed made by squall prepare, in place of files")
    parser.add_argument("--out", help="directory for counts and ledger (see squall verify)")
    parser.add_argument("--parallelism", type=int, default=2, help="executors per component (default 2)")
    options = parser.parse_args(args)
    if bool(options.files) == bool(options.feed):
        raise UsageError("word_count.py needs text files or --feed FEED, one of them; e.g. -- README.md")
    files = [str(Path(file).resolve()) for file in options.files]
    for file in files:
        if not Path(file).is_file():
            raise UsageError(f"input file {file} does not exist")
    feed = str(Path(options.feed).resolve()) if options.feed else None
    if feed is not None:
        from squall.pipeline.feed import Feed

        Feed.open(feed)
    out = _fresh_result(options.out) if options.out else None

    builder = TopologyBuilder()
    n = options.parallelism
    builder.set_spout("lines", Lines(feed, files), parallelism=n).set_config(max_spout_pending=MAX_PENDING)
    builder.set_bolt("split", Split(), parallelism=n).local_or_shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=n).fields_grouping("split", "word").set_config(
        tick_tuple_freq_secs=TICK_SECS
    )
    builder.set_bolt("sink", Sink(out)).global_grouping("split", stream="lines").global_grouping(
        "count", stream="totals"
    ).set_config(tick_tuple_freq_secs=TICK_SECS)
    return builder.build()
