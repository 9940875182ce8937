"""Links between data planes over real sockets, in one process so that every step can be chosen."""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import copy

import pytest

from tests.parcels import content, random_parcel, same
from tests.process.planes import (
    MIB,
    WINDOW_BYTES,
    Make,
    arena_mappings,
    endpoints,
    pair,
    parcel,
    settled,
    size_on_link,
    turn_until,
)

BIG = 100_000


@pytest.fixture
def make() -> Iterator[Make]:
    with endpoints() as make:
        yield make


# What is delivered


@pytest.mark.parametrize("arena_bytes", [16 * MIB, MIB, 0])
def test_whatever_is_sent_arrives_equal(make: Make, arena_bytes: int, seed: int) -> None:
    dice = random.Random(seed)
    one, other = pair(make, arena_bytes=arena_bytes)
    sent = []
    for _ in range(200):
        turn_until(lambda: one.plane.has_credit(1), [one, other])
        sent.append(random_parcel(dice))
        one.plane.send(1, copy(sent[-1]))  # what is sent is let go of
    turn_until(lambda: settled(one), [one, other])
    assert same([content(p) for p in other.parcels], [content(p) for p in sent])
    assert other.plane.counts["frames received"] == 200


def test_a_parcel_of_many_tuples_that_is_too_big_is_not_sent_and_one_tuple_is(make: Make) -> None:
    one, other = pair(make)
    many = parcel("x" * 1000, "y" * 1000)
    assert one.plane.send(1, many, most_bytes=1000) > 2000
    assert one.plane.send(1, parcel("z" * 1000), most_bytes=100) == 0
    assert one.plane.send(1, many, most_bytes=3000) == 0
    turn_until(lambda: settled(one), [one, other])
    assert other.values == ["z" * 1000, "x" * 1000, "y" * 1000]


# Credit


@pytest.mark.parametrize("arena_bytes", [4 * MIB, 0])
@pytest.mark.parametrize("size", [1000, BIG, 3 * WINDOW_BYTES])
def test_receiver_that_does_not_keep_up_stops_its_sender(make: Make, size: int, arena_bytes: int) -> None:
    one, other = pair(make, arena_bytes=arena_bytes)
    other.works = False
    sent, each = 0, size_on_link(parcel(bytes(size)))
    for _ in range(2):  # it resumes, and stops again
        under_way = 0
        while one.plane.has_credit(1):
            one.plane.send(1, parcel(bytes(size)))
            under_way += each
            sent += 1
        assert WINDOW_BYTES <= under_way < WINDOW_BYTES + size + 1000
        turn_until(lambda: len(other.parcels) == sent, [one, other])  # noqa: B023
        assert not one.plane.has_credit(1)
        other.finish_work()
        turn_until(lambda: one.plane.has_credit(1) and settled(one), [one, other])
    # What was processed takes no room in the arena.
    assert bool(one.plane.counts["buffers inline"]) == (size > 1000 and not arena_bytes)


def test_peer_may_send_before_it_is_connected_to(make: Make) -> None:
    """A worker learns of a peer from the board, which may be later than the peer's first frames. What those used up of
    the window must be given back, and they must not be taken twice."""
    one, other = make(0), make(1)
    one.connect(other)
    while one.plane.has_credit(1):
        one.plane.send(1, parcel(bytes(BIG)))
    n_sent = one.frames_sent(1)
    turn_until(lambda: len(other.parcels) == n_sent, [other])
    other.connect(one)
    turn_until(lambda: settled(one), [one, other])
    one.plane.send(1, parcel("more"))
    turn_until(lambda: len(other.parcels) == n_sent + 1, [one, other])
    assert other.plane.lost == 0


# Incarnations


def test_stragglers_of_a_dead_incarnation_are_refused(make: Make) -> None:
    """Before and after the board has said so; and they must not disturb the numbering of the living one."""
    one, other = make(0), make(1)
    one.connect(other)
    for n in range(5):
        one.plane.send(1, parcel(("old", n)))
    turn_until(lambda: len(other.parcels) == 5, [other])
    newer = make(0, incarnation=2)
    newer.connect(other)
    newer.plane.send(1, parcel(("new", 1)))
    turn_until(lambda: len(other.parcels) == 6, [other])
    one.plane.send(1, parcel(("old", 5)))
    newer.plane.send(1, parcel(("new", 2)))
    turn_until(lambda: other.plane.counts["frames refused"] == 1 and len(other.parcels) == 7, [other])
    assert other.plane.refusals[-1] == "frame of worker 0's dead incarnation 1"
    other.plane.disconnect(0)
    other.plane.fence(0, 2)
    one.plane.send(1, parcel(("old", 6)))
    newer.plane.send(1, parcel(("new", 3)))
    turn_until(lambda: other.plane.counts["frames refused"] == 2 and len(other.parcels) == 8, [other])
    assert other.values[5:] == [("new", 1), ("new", 2), ("new", 3)]
    assert other.plane.lost == 0
    # The living one gets credit for all it sent, also for what came before it was connected to.
    other.connect(newer)
    turn_until(lambda: settled(newer), [newer, other])


# Beginning and end


def test_arena_of_a_dead_sender_is_unmapped(make: Make) -> None:
    one, other = pair(make)
    one.plane.send(1, parcel(b"x" * BIG))
    turn_until(lambda: settled(one), [one, other])
    assert arena_mappings() == 2
    other.plane.disconnect(0)
    other.plane.fence(0, 2)
    assert arena_mappings() == 1
    one.plane.close()
    newer = make(0, incarnation=2)
    newer.connect(other)
    newer.plane.send(1, parcel(b"x" * BIG))
    turn_until(lambda: len(other.parcels) == 2, [other])
    assert arena_mappings() == 2
    newest = make(0, incarnation=3)  # seen before the board said so
    newest.connect(other)
    newest.plane.send(1, parcel("x"))
    turn_until(lambda: len(other.parcels) == 3, [other])
    assert arena_mappings() == 1


def test_last_words_are_heard(make: Make) -> None:
    """What a worker sends before it closes reaches a peer that is alive."""
    one, other = pair(make, arena_bytes=0)
    for n in range(50):
        one.plane.send(1, parcel((n, b"x" * BIG)))
    one.plane.close()
    turn_until(lambda: len(other.parcels) == 50, [other])
    assert [n for n, _ in other.values] == list(range(50))
