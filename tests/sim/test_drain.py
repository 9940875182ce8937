"""Full queues hold bolts, never for ever: a DAG that crosses two workers again and again drains, whatever the order.

Real cores, codec, frames and links with tiny windows; slow bolts; links whole. Only the parking of frames lets it end:
without it a link that is full of what the first bolt must wait with keeps the third from going on.
"""

from __future__ import annotations

import random

import pytest

from squall.engine.api.plan import Plan
from squall.engine.api.topology import Topology
from tests.sim.cores import Cluster, Plane, place
from tests.unit.rig import Does, Feeder, acks, chain, emits

MESSAGES, COPIES, TURNS = 40, 3, 6000
LIMIT_BYTES = 1024


def zigzag() -> tuple[Topology, Plan]:
    """spout (first worker) -> bolt-1 (second) -> bolt-2 (first) -> bolt-3 (second)."""
    copies = [Does(emits(COPIES), ("value",)) for _ in range(2)]
    topology = chain(Feeder(), *copies, Does(acks)).build()
    return topology, place(topology, 2, lambda component: component in ("bolt-1", "bolt-3"))


class NeverParks(Plane):
    """Leaves frames that wait in a full queue on their link."""

    def park(self) -> None:
        pass


def drains(seed: int, new_plane: type[Plane] = Plane) -> tuple[bool, int]:
    """Whether every message is acked within many turns, and the most that one worker held."""
    topology, plan = zigzag()
    spout, last = topology["spout"].component, topology["bolt-3"].component
    assert isinstance(spout, Feeder)
    assert isinstance(last, Does)
    rng = random.Random(seed)
    for n in range(MESSAGES):
        spout.feed(bytes(rng.randrange(100, 400)), id=n)
    most = 0
    # One slice at a time: bolts take their time, so that queues fill.
    cluster = Cluster(seed, deaths=False, made=(topology, plan), new_plane=new_plane)
    cluster.limit_bytes = LIMIT_BYTES
    for node in cluster.living:
        node.core.pressure.limit_bytes = LIMIT_BYTES
    for _ in range(TURNS):
        cluster.turn()
        most = max(most, *(node.core.pressure.held_bytes for node in cluster.living))
        if len(spout.acked) == MESSAGES and cluster.quiet:
            assert len(last.seen) == MESSAGES * COPIES * COPIES
            assert all(node.core.pressure.held_bytes == 0 for node in cluster.living)
            return True, most
    return False, most


@pytest.mark.parametrize("seed", range(25))
def test_a_dag_that_goes_to_and_fro_between_two_workers_drains(seed: int) -> None:
    drained, most = drains(seed)
    assert drained
    # Two queues with a window on its way into each, what waits for one elsewhere, and a turn's output beside each; in
    # memory, which takes twice what is on the wire. All there is to hold would be 150 KiB.
    assert most < 28 * 1024


def test_without_parking_it_does_not() -> None:
    assert not all(drains(seed, NeverParks)[0] for seed in range(25))
