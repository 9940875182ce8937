"""Topologies whose state must count each record once: texts, their words, counts of each, and a count of counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from squall import (
    AsyncBolt,
    BasicBolt,
    BasicCollector,
    BatchBolt,
    BatchCollector,
    BatchSpout,
    Bolt,
    BoltCollector,
    ColumnBatch,
    FailedTuple,
    Spout,
    SpoutCollector,
    StatefulBatchBolt,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)

WORDS = 6


def text_of(number: int) -> str:
    return " ".join(f"w{(number * 7 + place * place) % 41}" for place in range(WORDS))


def expected(texts: int) -> Counter[str]:
    """The words of so many texts, of two tasks."""
    counts = Counter(word for number in range(texts) for word in text_of(number).split())
    return counts + counts


class Texts(Spout):
    """Each task emits all texts. Killed, it begins from the first one: what was acked comes again."""

    outputs = ("text",)

    def __init__(self, count: int, named: bool = False) -> None:
        """`named`: message ids are text, and no positions."""
        self.count, self.named = count, named

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.next, self.failed = collector, 0, list[Any]()
        self.index = context.task_index

    def next_tuple(self) -> None:
        if self.failed:
            self.emit(self.failed.pop())
        elif self.next < self.count:
            self.next += 1
            number = self.next - 1
            self.emit(f"{self.index} {number}" if self.named else number)

    def emit(self, message_id: Any) -> None:
        number = int(message_id.split()[1]) if self.named else message_id
        self.collector.emit((text_of(number),), message_id=message_id)

    def fail(self, message_id: Any) -> None:
        self.failed.append(message_id)

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return self.next >= self.count and not self.failed


class BatchedTexts(Texts, BatchSpout):
    """The same by batches, with ids of two parts."""

    def next_batch(self, rows: int) -> None:
        ids = [self.failed.pop() for _ in range(min(rows, len(self.failed)))]
        fresh = range(self.next, min(self.next + rows - len(ids), self.count))
        self.next = max(self.next, fresh.stop)
        ids += [("texts", number) for number in fresh]
        if ids:
            self.collector.emit_batch(([text_of(number) for _, number in ids],), message_ids=iter(ids))

    def ack(self, message_id: Any) -> None: ...


class Split(BasicBolt):
    outputs: ClassVar = {"default": ("word",), "other": ("word", "place")}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        assert (tup.fields, len(tup)) == (("text",), 1)
        for place, word in enumerate(tup["text"].split()):
            if place % 2:
                collector.emit((word, place), stream="other")
            else:
                collector.emit((word,))


class SplitBatch(BatchBolt):
    outputs = Split.outputs

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        assert batch.fields == ("text",)
        words = [text.split() for text in batch["text"]]
        even = [row[::2] for row in words]
        collector.emit_batch(([word for row in even for word in row],), counts=[len(row) for row in even])
        places = [(row, place) for row in range(len(words)) for place in range(1, WORDS, 2)]
        collector.emit_batch(
            ([words[row][place] for row, place in places], [place for _, place in places]),
            parents=[row for row, _ in places], stream="other",
        )


class SplitItself(Bolt):
    """Holds tuples, and emits and acks them in another order."""

    outputs = Split.outputs

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector, self.held = collector, list[Tuple]()

    def execute(self, tup: Tuple) -> None:
        if not tup.is_tick:
            self.held.append(tup)
        if len(self.held) >= 8 or tup.is_tick:
            for held in reversed(self.held):
                self.emit(held)
            self.held = []

    def emit(self, tup: Tuple) -> None:
        for place, word in enumerate(tup["text"].split()):
            if place % 2:
                self.collector.emit((word, place), anchors=tup, stream="other")
            else:
                self.collector.emit((word,), anchors=iter([tup]))
        self.collector.ack(tup)


class SplitAsync(AsyncBolt):
    outputs = Split.outputs

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector

    async def execute(self, tup: Tuple) -> None:
        SplitItself.emit(self, tup)  # type: ignore[arg-type]


class Again(BasicBolt):
    """Passes on what each of its tasks gets, so that all of it is there as often as it has tasks."""

    outputs = ("word",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((tup["word"],))


class Count(StatefulBolt):
    outputs = ("word", "more")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        word = tup["word"]
        self.state[word] = self.state.get(word, 0) + 1
        collector.emit((word, 1))


class MoodyCount(Count):
    """Changes its state, emits, and fails the first time that it meets a word in each life."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.met: set[str] = set()

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        super().execute(tup, collector)
        if tup["word"] not in self.met:
            self.met.add(tup["word"])
            raise FailedTuple("the first time")


class CountBatch(StatefulBatchBolt):
    outputs = ("word", "more")

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        if batch.is_tick:
            return
        state, words = self.state, batch["word"]
        counts = Counter(words)
        for word, count in counts.items():
            state[word] = state.get(word, 0) + count
        first = {word: row for row, word in reversed(list(enumerate(words)))}
        collector.emit_batch((list(counts), list(counts.values())), parents=[first[word] for word in counts])


class Total(StatefulBolt):
    """Adds up what the counters say, in a dict that it changes in place."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        word, more = tup.values
        totals = self.state.setdefault("totals", {})
        totals[word] = totals.get(word, 0) + more


def topology(texts: Spout, split: Any, count: Any, total: Any = None) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("texts", texts, parallelism=2)
    declared = builder.set_bolt("split", split, parallelism=2).shuffle_grouping("texts")
    if isinstance(split, SplitItself):
        declared.set_config(tick_tuple_freq_secs=0.02)
    counted = builder.set_bolt("count", count, parallelism=2)
    counted.fields_grouping("split", "word").fields_grouping("split", "word", stream="other")
    builder.set_bolt("total", total or Total()).global_grouping("count")
    return builder.build()
