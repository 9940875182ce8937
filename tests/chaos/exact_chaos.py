"""State for `squall chaos --result`: what it writes must be the same after every run, row by row.

    squall chaos tests/chaos/exact_chaos.py:words --seed 1 --for 3s --result tests/chaos/exact_chaos.py:rows -- {}
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from squall import BasicCollector, FileSink, StatefulBolt, Topology, TopologyBuilder, Tuple
from tests.process import state_parts as parts

TEXTS = 150


class Numbered(StatefulBolt):
    """Emits each word with its number: a change that is lost, or made twice, moves all that follow."""

    outputs = ("word", "number")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        word = tup["word"]
        self.state[word] = self.state.get(word, 0) + 1
        collector.emit((word, self.state[word]))


def words(args: list[str]) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("texts", parts.Texts(TEXTS), parallelism=2)
    builder.set_bolt("split", parts.Split(), parallelism=2).shuffle_grouping("texts")
    count = builder.set_bolt("count", Numbered(), parallelism=2)
    count.fields_grouping("split", "word").fields_grouping("split", "word", stream="other")
    builder.set_bolt("file", FileSink(args[0]), parallelism=2).fields_grouping("count", "word", "number")
    return builder.build()


def rows(args: list[str]) -> Counter[str]:
    """The lines that the sink has written, and how often each is there."""
    return Counter(line for path in Path(args[0]).glob("*.jsonl") for line in path.read_text().splitlines())
