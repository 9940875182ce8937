"""Topologies that sit in a long `execute` and write down what reaches their sinks, for the tests of isolation."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from squall import BasicBolt, BasicCollector, Spout, SpoutCollector, Topology, TopologyBuilder, TopologyContext, Tuple


class Named(Spout):
    """Its topology's name, again and again."""

    outputs = ("name",)

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.name, self.n = collector, context.topology_name, 0

    def next_tuple(self) -> None:
        self.n += 1
        self.collector.emit((self.name,), message_id=self.n)


class Long(BasicBolt):
    """Passes on what it gets; the first time it does not come back before the file `release` is there."""

    outputs = ("name",)

    def __init__(self, directory: str, waits: bool) -> None:
        self.directory, self.waits = Path(directory), waits

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if self.waits:
            self.waits = False
            (self.directory / f"inside-{os.getpid()}").touch()
            while not (self.directory / "release").exists():
                time.sleep(0.01)
        for _ in range(100):
            collector.emit(tup.values)


class Sink(BasicBolt):
    """One line for each name that it is sent."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.file = (self.directory / f"sink-of-{context.topology_name}").open("a")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.file.write(f"{tup.values[0]}\n")
        self.file.flush()


def topology(arguments: list[str]) -> Topology:
    """`-- DIRECTORY [waits]`."""
    directory, waits = arguments[0], "waits" in arguments
    builder = TopologyBuilder()
    builder.set_spout("named", Named()).set_config(max_spout_pending=10)
    builder.set_bolt("long", Long(directory, waits)).shuffle_grouping("named")
    builder.set_bolt("sink", Sink(directory), parallelism=2).shuffle_grouping("long")
    return builder.build()
