"""Topologies for the tests of a standing cluster."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from squall import (
    BasicBolt,
    BasicCollector,
    Failure,
    ReplayingSpout,
    Spout,
    SpoutCollector,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from tests.process.parts import note


class Numbers(Spout):
    """1, 2, 3 ... for ever."""

    outputs = ("n",)

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.n = collector, 0

    def next_tuple(self) -> None:
        self.n += 1
        self.collector.emit((self.n,), message_id=self.n)


class Nothing(BasicBolt):
    blocking = True

    def __init__(self, seconds_per_tuple: float) -> None:
        self.seconds_per_tuple = seconds_per_tuple

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        print("prepared", context.component_id, context.task_index)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        time.sleep(self.seconds_per_tuple)


class Saves(BasicBolt):
    """Keeps each number in its state directory, in a page that it has to find room for."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.path = Path(context.state_dir, "n")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        print("saves", tup["n"])
        temporary = self.path.with_suffix(".new")
        temporary.write_text(f"{tup['n']:4096}")
        temporary.replace(self.path)
        time.sleep(0.001)


def saving() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers()).set_config(max_spout_pending=10)
    builder.set_bolt("saves", Saves()).shuffle_grouping("numbers")
    return builder.build()


def endless(seconds_per_tuple: float = 0.0, pending: int = 100) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers()).set_config(max_spout_pending=pending)
    builder.set_bolt("nothing", Nothing(seconds_per_tuple), parallelism=2).shuffle_grouping("numbers")
    return builder.build()


def topology() -> Topology:
    """For the command line; it leaves the machine to others."""
    return endless(seconds_per_tuple=0.001)


def stuck() -> Topology:
    """Too slow to be drained while a test waits: two hundred messages are most of a minute's work."""
    return endless(seconds_per_tuple=0.5, pending=200)


class Marked(ReplayingSpout):
    """0, 1, 2 ... up to the number in the file "limit", once that is there; what is acked is durable in a file each,
    with a line in another for each answer that it hears."""

    outputs = ("n",)

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def read(self) -> Iterator[tuple[Any, Any]]:
        limit = Path(self.directory, "limit")
        for n in itertools.count():
            if limit.exists() and n >= int(limit.read_text()):
                return
            if not Path(self.directory, f"done-{n}").exists():
                yield n, (n,)

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        note(self.directory, "acked", message_id)
        Path(self.directory, f"done-{message_id}").touch()

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        note(self.directory, "failed", message_id)
        super().on_failure(message_id, failure)


def marked(arguments: list[str]) -> Topology:
    """The spout in one worker, a slow bolt in the other."""
    builder = TopologyBuilder()
    [directory] = arguments
    builder.set_spout("marked", Marked(directory)).set_config(max_spout_pending=20)
    builder.set_bolt("slow", Nothing(0.001)).shuffle_grouping("marked")
    return builder.build()
