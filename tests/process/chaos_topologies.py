"""Topologies for the command `squall chaos`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall import Spout, SpoutCollector, Topology, TopologyBuilder, TopologyContext
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


def endless() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Endless())
    builder.set_bolt("halves", chaos_parts.Halves()).shuffle_grouping("numbers")
    return builder.build()


def one_shot() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", OneShot())
    builder.set_bolt("halves", chaos_parts.Halves()).shuffle_grouping("numbers")
    return builder.build()
