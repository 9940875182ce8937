"""Storm's tests of groupings, for any `World`; see tests/storm_world.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from squall import (
    BasicBolt,
    BasicCollector,
    CustomGrouping,
    Spout,
    SpoutCollector,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from tests.process.parts import note, notes
from tests.storm_streams import Indexes
from tests.storm_world import World
from tests.unit.wired import wired


def fed(world: World, builder: TopologyBuilder, keys: list[Any]) -> list[list[Any]]:
    """Feed keys to "spout", which `builder` lacks; what `Indexes` noted."""
    feeder = world.feeder("key")
    builder.set_spout("spout", feeder)
    world.start(builder)
    for key in keys:
        feeder.feed((key,))
    world.settle()
    assert sorted(feeder.acked) == list(range(1, len(keys) + 1))
    return notes(world.directory, "seen")


def fields_by_content(world: World) -> None:
    builder = wired(bolt=(Indexes(world.directory), 3, "fields spout key"))
    keys = [f"key-{number % 10}".encode() for number in range(100)]
    seen = fed(world, builder, keys)
    assert len(seen) == 100
    assert len({(index, key) for index, key in seen}) == 10
    assert {index for index, _ in seen} == {0, 1, 2}


class FirstN(CustomGrouping):
    """Storm's NGrouping: the first n tasks."""

    def __init__(self, n: int) -> None:
        self.n = n

    def prepare(self, context: TopologyContext, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        self.chosen = sorted(target_tasks)[: self.n]

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> list[int]:
        return self.chosen


def copies_of_a_custom_grouping(world: World) -> None:
    builder = TopologyBuilder()
    builder.set_bolt("two", Indexes(world.directory), parallelism=4).custom_grouping("spout", FirstN(2))
    builder.set_bolt("three", Indexes(world.directory), parallelism=6).custom_grouping("spout", FirstN(3))
    seen = fed(world, builder, ["a", "b"])
    assert Counter(map(tuple, seen)) == {
        (index, key): copies for key in "ab" for index, copies in ((0, 2), (1, 2), (2, 1))
    }


class Here(Spout):
    """Emits the name of its worker."""

    outputs = ("worker",)

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector
        self.worker = context.worker
        self.left = 20

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.collector.emit((self.worker,), message_id=self.left)
        self.exhausted = not self.left


class Whence(BasicBolt):
    """Notes where a tuple is from and where it is."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)

    def prepare(self, conf: Any, context: TopologyContext) -> None:
        self.worker = context.worker

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        note(self.directory, "whence", [tup[0], self.worker])


def local_tasks_are_preferred(world: World) -> None:
    world.start(wired(spout=(Here(), 2), bolt=(Whence(world.directory), 6, "local_or_shuffle spout")))
    world.finish()
    rows = notes(world.directory, "whence")
    assert len(rows) == 40
    assert all(origin == worker for origin, worker in rows)


SCENARIOS = fields_by_content, copies_of_a_custom_grouping, local_tasks_are_preferred
