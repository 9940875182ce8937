"""Acks past the frames: what a data plane tells by its rings, what it takes from them, what it leaves to a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from squall.engine.flow.parcel import Acks
from squall.ipc.ack_rings import AckRings, rings_words
from tests.process.planes import Endpoint, Make, endpoints, parcel, settled, turn_until


class Rings:
    """Endpoints that share the memory of their rings, and what each has been told."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self.words = memoryview(bytearray(8 * rings_words(2))).cast("Q")
        self.told: list[Acks] = []

    def endpoint(
        self, worker: int, incarnation: int = 1, kind: Callable[..., AckRings | None] = AckRings
    ) -> Endpoint:
        made = self._make(worker, incarnation, rings=kind(self.words[:], 2, worker, incarnation))
        made.plane.set_awake(True)
        return made

    def pair(self, kind: Callable[..., AckRings | None] = AckRings) -> tuple[Endpoint, Endpoint]:
        """`kind` of rings that the first one has."""
        one, other = self.endpoint(0, kind=kind), self.endpoint(1)
        one.connect(other)
        other.connect(one)
        return one, other

    def take(self, endpoint: Endpoint) -> int:
        return endpoint.plane.take_acks(self.told.append)


@pytest.fixture
def rings() -> Iterator[Rings]:
    with endpoints() as make:
        yield Rings(make)


def test_who_falls_asleep_while_it_is_told_is_woken(rings: Rings) -> None:
    class DozesOff(AckRings):
        """Tells somebody who looked at its rings for the last time just before."""

        def tell(self, worker: int, incarnation: int, processed: int, acks: Acks) -> bool:
            told = super().tell(worker, incarnation, processed, acks)
            other.plane.set_awake(False)
            return told

    one, other = rings.pair(DozesOff)
    one.plane.send(1, parcel("x"))
    turn_until(lambda: other.parcels and settled(one), [one, other])
    assert one.plane.tell_acks(1, Acks({1: 1}))
    other.await_input()
    assert rings.take(other) == 1


def assert_refused(rings: Rings, other: Endpoint, reason: str) -> None:
    assert rings.take(other) == 1
    assert rings.told == []
    assert other.plane.counts["frames refused"] == 1
    assert other.plane.refusals[-1] == reason


def test_acks_of_the_dead_are_refused(rings: Rings) -> None:
    one, other = rings.pair()
    assert one.plane.tell_acks(1, Acks({1: 1}))
    other.plane.disconnect(0)
    other.plane.fence(0, 2)
    assert_refused(rings, other, "acks of worker 0's dead incarnation 1")
