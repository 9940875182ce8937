"""Storm's first bolt: a number in, its double and its triple out, anchored and acked by hand.

    squall run examples/double_triple.py --workers 2

::

    numbers ──shuffle──► double_triple ──shuffle──► show

`DoubleAndTriple` does what `@bolt` and `BasicBolt` do for you: it anchors what it emits to its input, then acks that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall import Bolt, BoltCollector, Topology, TopologyBuilder, TopologyContext, Tuple, bolt, spout


@spout("number")
def numbers() -> range:
    return range(1, 6)


class DoubleAndTriple(Bolt):
    outputs = ("number", "double", "triple")

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        number = tup["number"]
        self.collector.emit((number, number * 2, number * 3), anchors=tup)
        self.collector.ack(tup)


@bolt
def show(tup: Tuple) -> None:
    print(f"{tup['number']}: double {tup['double']}, triple {tup['triple']}")


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", numbers)
    builder.set_bolt("double_triple", DoubleAndTriple(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("show", show).shuffle_grouping("double_triple")
    return builder.build()
