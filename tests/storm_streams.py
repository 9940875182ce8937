"""Storm's tests of streams, order, ticks and errors, for any `World`; see tests/storm_world.py."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from squall import (
    BasicBolt,
    BasicCollector,
    FailedTuple,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from squall.testing import FixedSpout
from tests.process.parts import OneShot, note, notes
from tests.storm_world import World
from tests.unit.wired import wired


class Indexes(BasicBolt):
    """Notes the index of each task, and whatever came."""

    outputs = ("value",)

    def __init__(self, directory: Path, name: str = "seen") -> None:
        self.directory = str(directory)
        self.name = name

    def prepare(self, conf: Any, context: TopologyContext) -> None:
        self.index = context.task_index

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup.is_tick:
            note(self.directory, "ticks", [self.index, tup["rate_secs"], tup.source_component, tup.source_stream])
        elif tup[0] == "fail":
            raise FailedTuple("on purpose")
        elif tup[0] == "report":
            collector.report_error(ValueError("something odd"))
        else:
            values = [value.hex() if isinstance(value, bytes) else value for value in tup.values]
            note(self.directory, self.name, [self.index, *values])


class Counts(BasicBolt):
    """How often each word came, or each task's inputs if there is no word."""

    outputs = ("word", "count")

    def prepare(self, conf: Any, context: TopologyContext) -> None:
        self.counts = Counter[Any]()

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.counts[tup[0]] += 1
        collector.emit((tup[0], self.counts[tup[0]]))


class Total(Counts):
    outputs = ("total",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.counts["all"] += 1
        collector.emit((self.counts["all"],))


def basic_topology(world: World) -> None:
    words = ["nathan", "bob", "joey", "nathan"]
    builder = TopologyBuilder()
    builder.set_spout("words", FixedSpout(("word",), [(word,) for word in words]), 2, tasks=3)
    builder.set_bolt("count", Counts(), parallelism=4).fields_grouping("words", "word")
    builder.set_bolt("total", Total()).global_grouping("words")
    builder.set_bolt("last", Total()).global_grouping("total")
    for name, parallelism in (("words", 1), ("count", 2), ("total", 1), ("last", 1)):
        builder.set_bolt(f"see-{name}", Indexes(world.directory, name), parallelism).shuffle_grouping(name)
    world.start(builder)
    world.finish()

    def seen(name: str) -> list[list[Any]]:
        return sorted(row[1:] for row in notes(world.directory, name))

    assert seen("words") == sorted([word] for word in words)
    assert seen("count") == [["bob", 1], ["joey", 1], ["nathan", 1], ["nathan", 2]]
    assert seen("total") == seen("last") == [[1], [2], [3], [4]]


def several_tasks_per_executor(world: World) -> None:
    feeder = world.feeder("value")
    builder = TopologyBuilder()
    builder.set_spout("spout", feeder)
    builder.set_bolt("bolt", Indexes(world.directory), parallelism=3, tasks=6).all_grouping("spout")
    world.start(builder)
    feeder.feed((1,))
    world.settle()
    assert sorted(index for index, _ in notes(world.directory, "seen")) == [0, 1, 2, 3, 4, 5]
    assert feeder.acked == [1]


def ticks_are_beside_the_data(world: World) -> None:
    feeder = world.feeder("value")
    builder = TopologyBuilder()
    builder.set_spout("spout", feeder)
    builder.set_bolt("bolt", Indexes(world.directory), 1, 2).shuffle_grouping("spout").set_config(
        tick_tuple_freq_secs=0.05
    )
    builder.set_bolt("other", Indexes(world.directory, "other")).shuffle_grouping("spout")
    world.start(builder)
    for value in "abc":
        feeder.feed((value,))
    world.until("a tick at each task", lambda: {tick[0] for tick in notes(world.directory, "ticks")} == {0, 1})
    world.settle()
    assert sorted(value for _, value in notes(world.directory, "seen")) == ["a", "b", "c"]
    assert {tuple(tick[1:]) for tick in notes(world.directory, "ticks")} == {(0.05, "__system", "__tick")}
    assert (sorted(feeder.acked), feeder.failures) == ([1, 2, 3], [])


# ---- order ----


class Numbered(BasicBolt):
    """Emits a running number of its own for each tuple, with something that fills links."""

    outputs = ("number", "load")

    def prepare(self, conf: Any, context: TopologyContext) -> None:
        self.number = 0

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.number += 1
        collector.emit((self.number, "x" * 1000))


class InOrder(BasicBolt):
    """Notes at its end the numbers that each producer's tuples had."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)

    def prepare(self, conf: Any, context: TopologyContext) -> None:
        self.numbers: dict[int, list[int]] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.numbers.setdefault(tup.source_task, []).append(tup["number"])

    def cleanup(self) -> None:
        note(self.directory, "numbers", list(self.numbers.items()))


def order_per_producer_and_task(world: World) -> None:
    builder = TopologyBuilder()
    builder.set_spout("spout", OneShot(str(world.directory), 1000, tracked=False), parallelism=3)
    builder.set_bolt("numbered", Numbered(), parallelism=3).shuffle_grouping("spout")
    builder.set_bolt("last", InOrder(world.directory), parallelism=2, tasks=4).shuffle_grouping("numbered")
    world.start(builder, link_window_bytes=64 * 1024, batch_tuples=1)
    world.finish()
    tasks = notes(world.directory, "numbers")
    assert len(tasks) == 4
    runs = [numbers for task in tasks for _, numbers in task]
    assert sum(map(len, runs)) == 3000
    assert all(before < after for numbers in runs for before, after in pairwise(numbers))


# ---- errors ----


def report_error_and_failed_tuple(world: World) -> None:
    feeder = world.feeder("value")
    world.start(wired(spout=(feeder, 1), bolt=(Indexes(world.directory), 1, "shuffle spout")))
    for value in ("fail", "report", "fine"):
        feeder.feed((value,), value)
    world.settle()
    assert sorted(feeder.acked) == ["fine", "report"]
    ((message_id, failure),) = feeder.failures
    assert (message_id, failure.reason, failure.component, failure.error, failure.attempt) == (
        "fail", "failed", "bolt", "on purpose", 1,
    )
    world.until("the report", lambda: "bolt[" in world.reported and "ValueError: something odd" in world.reported)


SCENARIOS = (
    basic_topology, several_tasks_per_executor, ticks_are_beside_the_data, order_per_producer_and_task,
    report_error_and_failed_tuple,
)
