"""Frames of other topologies and of other versions of an assignment: not believed and not executed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.engine.errors import ComponentError
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


def test_what_no_receiver_would_take_is_an_error_at_its_sender(make: Make) -> None:
    one, other = (make(worker, max_frame_bytes=2 * MIB, arena_bytes=4 * MIB) for worker in (0, 1))
    one.connect(other)
    other.connect(one)
    with pytest.raises(ComponentError, match=r"frame of \d+ bytes; max_frame_bytes allows 2097152"):
        one.plane.send(1, parcel(["x" * 3 * MIB]))
    with pytest.raises(ComponentError, match="max_frame_bytes"):
        one.plane.send(1, parcel("x" * (2 * MIB - 50)))
    with pytest.raises(ComponentError, match="max_frame_bytes"):
        one.plane.send(1, parcel(bytes(3 * MIB), "x" * 3 * MIB))
    assert one.frames_in_arena == 0
    one.plane.send(1, parcel(bytes(3 * MIB)))  # lies in the arena
    one.plane.send(1, parcel("x" * (2 * MIB - 1000)))
    turn_until(lambda: len(other.values) == 2 and settled(one), [one, other])
    assert (other.plane.lost, other.plane.counts["frames refused"]) == (0, 0)
