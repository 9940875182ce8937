"""Acks past the frames: whom a data plane wakes that it has told some in a ring, and whose it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from squall.engine.flow.anchoring import Acks
from squall.ipc.ack_rings import AckRings, rings_words
from squall.ipc.shim import DROP, LinkRule
from tests.process.planes import Endpoint, Make, endpoints, parcel, settled, turn_until


@pytest.fixture
def make() -> Iterator[Make]:
    with endpoints() as make:
        yield make


def pair(make: Make, kind: type[AckRings] = AckRings) -> tuple[Endpoint, Endpoint]:
    """Endpoints that share the memory of their rings; `kind` of rings that the first one has."""
    words = memoryview(bytearray(8 * rings_words(2))).cast("Q")
    one, other = (make(me, rings=rings(words[:], 2, me, 1)) for me, rings in enumerate((kind, AckRings)))
    for end, peer in ((one, other), (other, one)):
        end.plane.set_awake(True)
        end.connect(peer)
    return one, other


def test_who_falls_asleep_while_it_is_told_is_woken(make: Make) -> None:
    class DozesOff(AckRings):
        """Tells somebody who looked at its rings for the last time just before."""

        def tell(self, worker: int, incarnation: int, processed: int, acks: Acks) -> bool:
            told = super().tell(worker, incarnation, processed, acks)
            other.plane.set_awake(False)
            return told

    one, other = pair(make, DozesOff)
    one.plane.send(1, parcel("x"))
    turn_until(lambda: other.parcels and settled(one), [one, other])
    assert one.plane.tell_acks(1, Acks({1: 1}))
    other.await_input()


def test_acks_of_the_dead_are_refused(make: Make) -> None:
    one, other = pair(make)
    one.plane.break_links([LinkRule(DROP, 1.0)], 1)
    assert not one.plane.tell_acks(1, Acks({1: 1})), "they would pass a broken link"
    one.plane.break_links([], 1)
    assert one.plane.tell_acks(1, Acks({1: 1}))
    other.plane.disconnect(0)
    other.plane.fence(0, 2)
    told: list[Acks] = []
    assert (other.plane.take_acks(told.append), told) == (1, [])
    assert other.plane.refusals == ["acks of worker 0's dead incarnation 1"]
