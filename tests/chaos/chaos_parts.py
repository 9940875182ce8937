"""Topologies for `squall chaos`, whole and broken on purpose: numbers -> halves -> end."""

from __future__ import annotations

import os
import time
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
)

MESSAGES = 300
HELD_SECS = 0.15


class Numbers(ReplayingSpout):
    """0, 1, 2 ..., from the position that it keeps; one that is broken keeps the highest that was acked."""

    outputs = ("n",)

    def __init__(self, highest: bool = False) -> None:
        self.highest = highest

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.file = Path(context.state_dir) / "position"
        self.prefix = AckedPrefix(int(self.file.read_text()) if self.file.exists() else 0)
        self.position = self.prefix.committable

    def read(self) -> Iterator[tuple[Any, Any]]:
        for n in range(self.position, MESSAGES):
            yield n, (n,)

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        self.prefix.ack(message_id)
        position = max(self.position, message_id + 1) if self.highest else self.prefix.committable
        if position != self.position:
            self.position = position
            fresh = self.file.with_suffix(".new")
            fresh.write_text(str(position))
            fresh.replace(self.file)


class Halves(BasicBolt):
    """Two tuples of one."""

    outputs = ("n", "half")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((tup["n"], 1))
        collector.emit((tup["n"], 2))


class End(Bolt):
    """Keeps one message in ten for a while, so that there are always some that are not acked while later ones are."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.held: list[tuple[float, Tuple]] = []

    def execute(self, tup: Tuple) -> None:
        now = time.monotonic()
        if not tup.is_tick and tup["n"] % 10 == 3 and tup["half"] == 2:
            self.held.append((now, tup))
        else:
            self.collector.ack(tup)
        while self.held and (tup.is_tick and now - self.held[0][0] >= HELD_SECS):
            self.collector.ack(self.held.pop(0)[1])


class Opens(Halves):
    """Takes an hour to be ready, and tells when it begins."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        (Path(os.environ["TMPDIR"]) / "opening").touch()
        time.sleep(3600)


def topology(halves: Halves, highest: bool = False) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(highest))
    builder.set_bolt("halves", halves, parallelism=2).shuffle_grouping("numbers")
    end = builder.set_bolt("end", End(), parallelism=2).fields_grouping("halves", "n")
    end.set_config(tick_tuple_freq_secs=0.05)
    return builder.build()


def half(row: dict[str, Any]) -> tuple[int, int]:
    """What `--key` compares."""
    return row["n"], row["half"]


def numbers() -> Topology:
    return topology(Halves())


def highest() -> Topology:
    return topology(Halves(), highest=True)


def opens() -> Topology:
    return topology(Opens())
