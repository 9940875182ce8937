"""The classes that topology.yaml puts together.

    squall run examples/flux/topology.yaml -- --filter examples/flux/small.properties text=README.md
"""

from __future__ import annotations

from squall import BasicBolt, BasicCollector, StatefulBolt, Tuple


class StopWords:
    """Words that nobody wants counted."""

    def __init__(self, *words: str) -> None:
        self.words = frozenset(words)


class Split(BasicBolt):
    outputs = ("word",)

    def __init__(self, skip: StopWords) -> None:
        self.skip = skip

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for word in tup["text"].lower().split():
            if word not in self.skip.words:
                collector.emit((word,))


class Count(StatefulBolt):
    outputs = ("word", "count")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        word = tup["word"]
        count = self.state[word] = self.state.get(word, 0) + 1
        collector.emit((word, count))
