"""A topology for the tests of the web page: a message that fails for good, a slow bolt, and names and
values that would be markup."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from squall import BasicBolt, BasicCollector, ReplayingSpout, Topology, TopologyBuilder, Tuple

EVIL = "<img src=x onerror=alert(1)>"
"""As a name; a page that took it for markup would say so."""


class Slowly(ReplayingSpout):
    outputs = ("n",)
    blocking = True

    def read(self) -> Iterator[tuple[Any, Any]]:
        n = 0
        while True:
            n += 1
            yield n, (f"value {n} {EVIL}",)
            time.sleep(0.02)


class Picky(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["n"].split()[1] == "7":
            print("seven is", EVIL)
            raise ValueError(f"cannot take {EVIL} \x1b[31m\u202e")
        collector.emit((tup["n"],))


class Busy(BasicBolt):
    blocking = True

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        time.sleep(0.03)


def shown() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("source", Slowly()).set_config(max_spout_pending=50)
    builder.set_bolt("picky", Picky(), parallelism=2).shuffle_grouping("source")
    builder.set_bolt(EVIL, Busy()).shuffle_grouping("picky")
    return builder.build()
