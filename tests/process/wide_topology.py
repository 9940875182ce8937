"""A topology of 200 components, as a generator of code makes them: for tests of what shows it."""

from __future__ import annotations

import random
import time

from squall import BasicBolt, BasicCollector, Topology, TopologyBuilder, Tuple
from tests.process.standing_topologies import Numbers

LAYERS, PER_LAYER, SPOUTS = 10, 20, 20


class Ticks(Numbers):
    def next_tuple(self) -> None:
        super().next_tuple()
        time.sleep(0.02)


class Passes(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["n"] % 3 == 0:
            collector.emit((tup["n"],))


def wide() -> Topology:
    """Spouts, and layers of bolts that each read one or two of the layer before."""
    chance, builder = random.Random(7), TopologyBuilder()
    before = [f"source_of_events_{index}" for index in range(SPOUTS)]
    for name in before:
        builder.set_spout(name, Ticks()).set_config(max_spout_pending=5)
    for layer in range(1, LAYERS):
        names = [f"step_{layer}_{index}_of_the_way" for index in range(PER_LAYER)]
        for name in names:
            bolt = builder.set_bolt(name, Passes())
            for sender in chance.sample(before, chance.choice((1, 1, 2))):
                bolt.shuffle_grouping(sender)
        before = names
    return builder.build()
