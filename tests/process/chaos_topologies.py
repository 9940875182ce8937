"""Topologies for the command `squall chaos`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from squall import BasicBolt, Spout, SpoutCollector, Topology, TopologyBuilder, TopologyContext
from tests.process import chaos_parts


class OneShot(Spout):
    """Never emits again what failed."""

    outputs = ("n",)

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector
        self.next = 0

    def next_tuple(self) -> None:
        if self.next < 50:
            self.next += 1
            self.collector.emit((self.next,), self.next)
        self.exhausted = self.next == 50


def numbers() -> Topology:
    return chaos_parts.topology()


def highest() -> Topology:
    return chaos_parts.topology(highest=True)


class Endless(OneShot):
    """Emits for ever."""

    def next_tuple(self) -> None:
        self.next += 1
        self.collector.emit((self.next,), self.next)


class Opens(chaos_parts.Halves):
    """Takes an hour to be ready, and tells when it begins."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        (Path(os.environ["TMPDIR"]) / "opening").touch()
        time.sleep(3600)


def halved(spout: Spout, halves: BasicBolt) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", spout)
    builder.set_bolt("halves", halves).shuffle_grouping("numbers")
    return builder.build()


def endless() -> Topology:
    return halved(Endless(), chaos_parts.Halves())


def one_shot() -> Topology:
    return halved(OneShot(), chaos_parts.Halves())


def opens() -> Topology:
    return halved(OneShot(), Opens())
