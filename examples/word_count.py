"""Word count, exact under any number of worker deaths.

    squall run examples/word_count.py --workers 2 -- some.txt other.txt
    squall run examples/word_count.py --workers 2 -- --feed FEED --out RESULT

::

    lines ──► split ──fields(word)──► count ──fields(word)──► counts
                └───fields(partition, offset)───────────────► ledger

`count` counts each word once, and the sinks write each row once: RESULT/counts has each word with every number from 1
to its count, RESULT/ledger each line with its number of words. word_count_by_batch.py is the same by batches.

RESULT is emptied first, but with `--keep`: give it to a run that may go on later (`--on spark --checkpoint DIR`).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from squall import BasicBolt, BasicCollector, FeedSpout, FileSink, StatefulBolt, Topology, TopologyBuilder, Tuple


class Split(BasicBolt):
    outputs = {"default": ("word",), "lines": ("partition", "offset", "words")}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        partition, offset, text = tup.values
        words = text.split()
        for word in words:
            collector.emit((word,))
        collector.emit((partition, offset, len(words)), stream="lines")


class Count(StatefulBolt):
    outputs = ("word", "count")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        word = tup["word"]
        count = self.state[word] = self.state.get(word, 0) + 1
        collector.emit((word, count))


class Commonest(BasicBolt):
    """Prints the most common words at the end."""

    def __init__(self) -> None:
        self.totals = Counter[str]()

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.totals[tup["word"]] = max(tup["count"], self.totals[tup["word"]])

    def cleanup(self) -> None:
        print(f"{self.totals.total():,} words, {len(self.totals):,} different; the commonest:")
        for word, count in self.totals.most_common(10):
            print(f"{count:>9,}  {word}")


def topology(args: list[str], split: Any = Split, count: Any = Count) -> Topology:
    options = parsed(args)
    builder, n = TopologyBuilder(), options.parallelism
    builder.set_spout("lines", FeedSpout(options.feed or options.files, ("partition", "offset", "text")), n)
    builder.set_bolt("split", split(), parallelism=n).local_or_shuffle_grouping("lines")
    builder.set_bolt("count", count(), parallelism=n).fields_grouping("split", "word")
    if options.out is None:
        builder.set_bolt("commonest", Commonest()).global_grouping("count")
        return builder.build()
    for file in () if options.keep else options.out.glob("*/part-*.jsonl"):
        file.unlink()
    builder.set_bolt("counts", FileSink(options.out / "counts"), n).fields_grouping("count", "word")
    builder.set_bolt("ledger", FileSink(options.out / "ledger")).global_grouping("split", stream="lines")
    return builder.build()


def counts(args: list[str]) -> dict[str, int]:
    """What --out holds: for `squall chaos --result`."""
    totals: dict[str, int] = {}
    for path in (parsed(args).out / "counts").glob("part-*.jsonl"):
        for row in map(json.loads, path.read_text().splitlines()):
            totals[row["word"]] = max(row["count"], totals.get(row["word"], 0))
    return totals


def parsed(args: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="word_count.py", description="Count the words of text files or of a feed.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("files", nargs="*", default=[], metavar="FILE", help="text files")
    source.add_argument("--feed", help="a feed made by squall prepare, in place of files")
    parser.add_argument("--out", type=Path, help="directory for counts and ledger (see check_word_count.py)")
    parser.add_argument("--keep", action="store_true", help="add to what --out holds: for a run that may go on")
    parser.add_argument("--parallelism", type=int, default=2, help="executors per component (default 2)")
    return parser.parse_args(args)
