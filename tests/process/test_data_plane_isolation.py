"""Frames of other topologies and of other versions of an assignment: not believed and not executed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.ipc import codec
from squall.ipc.frame import CREDIT, HELLO, opening_of
from tests.process.planes import (
    MIB,
    Make,
    Marker,
    attack,
    endpoints,
    frame,
    pair,
    parcel,
    settled,
    turn_until,
)

FORMER, OTHER = opening_of("t-1-00000000", 2), opening_of("t-2-00000000", 1)


@pytest.fixture
def make() -> Iterator[Make]:
    with endpoints() as make:
        yield make


@pytest.mark.parametrize("opening", [FORMER, OTHER], ids=["former version", "other topology"])
def test_they_are_counted_and_change_nothing(make: Make, tmp_path: Path, opening: bytes) -> None:
    one, other = pair(make)
    turn_until(lambda: one.turn() == 0 and other.turn() == 0, [one, other])
    marker = tmp_path / "executed"
    evil = pickle.dumps(Marker(marker))
    high = 0xFFFF_FFFF
    attack(
        other,
        frame([evil], opening, sequence=2),
        frame([evil], opening, sender=7),
        frame([], opening, kind=HELLO, sender_incarnation=high, sequence=0),
        frame([], opening, kind=HELLO, sequence=1000),
        frame([], opening, kind=CREDIT, sender_incarnation=high, processed=1),
        frame([codec.encode(parcel("evil"))[0]], opening, sender_incarnation=high),
        [*frame([evil], opening), *[bytes(MIB)] * 8],
    )
    turn_until(lambda: other.plane.counts["frames refused"] == 7, [one, other])
    assert not marker.exists()
    one.plane.send(1, parcel("good"))
    turn_until(lambda: other.values == ["good"] and settled(one), [one, other])
    assert other.plane.lost == 0


def test_a_high_incarnation_in_a_first_frame_stops_nobody(make: Make) -> None:
    one, other = make(0), make(1)
    attack(other, frame([], FORMER, kind=HELLO, sender_incarnation=0xFFFF_FFFF, sequence=0))
    turn_until(lambda: other.plane.counts["frames refused"] == 1, [other])
    one.connect(other)
    other.connect(one)
    one.plane.send(1, parcel("good"))
    turn_until(lambda: other.values == ["good"] and settled(one), [one, other])
