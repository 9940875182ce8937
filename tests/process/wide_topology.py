"""A topology of 200 components, as a generator of code makes them: for tests of what shows it."""

from __future__ import annotations

import random
import time

from squall import Topology, TopologyBuilder, Tuple, bolt
from tests.process.standing_topologies import Numbers

LAYERS, PER_LAYER, SPOUTS = 10, 20, 20


class Ticks(Numbers):
    def next_tuple(self) -> None:
        super().next_tuple()
        time.sleep(0.02)


@bolt("n")
def passes(tup: Tuple) -> int | None:
    return None if tup["n"] % 3 else tup["n"]


def wide() -> Topology:
    """Spouts, and layers of bolts that each read one or two of the layer before."""
    chance, builder = random.Random(7), TopologyBuilder()
    before = [f"source_of_events_{index}" for index in range(SPOUTS)]
    for name in before:
        builder.set_spout(name, Ticks()).set_config(max_spout_pending=5)
    for layer in range(1, LAYERS):
        names = [f"step_{layer}_{index}_of_the_way" for index in range(PER_LAYER)]
        for name in names:
            step = builder.set_bolt(name, passes)
            for sender in chance.sample(before, chance.choice((1, 1, 2))):
                step.shuffle_grouping(sender)
        before = names
    return builder.build()
