"""Topologies for the tests of a standing cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from squall import BasicBolt, BasicCollector, Spout, SpoutCollector, Topology, TopologyBuilder, TopologyContext, Tuple


class Numbers(Spout):
    """1, 2, 3 ... for ever."""

    outputs = ("n",)

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.n = collector, 0

    def next_tuple(self) -> None:
        self.n += 1
        self.collector.emit((self.n,), self.n)


class Nothing(BasicBolt):
    blocking = True

    def __init__(self, seconds_per_tuple: float) -> None:
        self.seconds_per_tuple = seconds_per_tuple

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        print("prepared", context.component_id, context.task_index)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        time.sleep(self.seconds_per_tuple)


def endless(seconds_per_tuple: float = 0.0, pending: int = 100) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers()).set_config(max_spout_pending=pending)
    builder.set_bolt("nothing", Nothing(seconds_per_tuple), parallelism=2).shuffle_grouping("numbers")
    return builder.build()


def topology() -> Topology:
    """For the command line."""
    return endless()


def stuck() -> Topology:
    """Too slow to be drained while a test waits."""
    return endless(seconds_per_tuple=0.02, pending=200)
