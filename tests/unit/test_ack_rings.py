"""Ack rings: what one worker tells another is taken once, whole and in order, by the life it was meant for."""

from __future__ import annotations

import random

import pytest

from squall.engine.flow.anchoring import Acks, BlockAcks
from squall.ipc.ack_rings import AckRings, Told, ring_words, rings_words

BIG = (1 << 64) - 1


@pytest.fixture
def words() -> memoryview:
    return memory(3)


def memory(n_workers: int) -> memoryview:
    return memoryview(bytearray(8 * rings_words(n_workers))).cast("Q")


def rings(words: memoryview, me: int, incarnation: int = 1, n_workers: int = 3) -> AckRings:
    made = AckRings(words[:], n_workers, me, incarnation)
    made.set_awake(True)
    return made


def numbers_of(rings: AckRings) -> list[int]:
    """Of the chunks that it takes now."""
    return [chunk[2] for chunk in rings.take()]


def test_any_sizes_in_any_turns(seed: int) -> None:
    """Rings go round many times, with ends of every length left over."""
    rng = random.Random(seed)
    n_workers = 20
    words = memory(n_workers)
    one, other = rings(words, 3, 1, n_workers), rings(words, 11, 2, n_workers)
    told: list[Told] = []
    taken: list[Told] = []
    refused = 0
    for number in range(4000):
        acks = Acks({rng.getrandbits(64): rng.getrandbits(64) for _ in range(rng.randrange(60))})
        acks.masks = {rng.getrandbits(64): 1 << rng.randrange(320) for _ in range(rng.choice((0, 0, 3)))}
        for members in rng.choices((1, 2, 9), k=rng.choice((0, 0, 3))):
            masks = {1 << rng.randrange(320): rng.getrandbits(8 * members) for _ in range(rng.randrange(3))}
            acks.blocks[rng.choice((BIG, number))] = BlockAcks(members, rng.getrandbits(64 * members), masks)
        if one.tell(11, 2, number, acks):
            told.append((3, 1, number, acks))
        else:
            refused += 1
        if rng.random() < 0.3:
            taken += other.take()
            other.confirm()
    assert taken + other.take() == told
    assert refused > 100
    assert len(told) > 1000
    assert other.pass_over() == []


# Deaths


def test_a_new_life_does_not_take_what_the_former_was_told(words: memoryview) -> None:
    one, _ = rings(words, 0), rings(words, 1)
    assert one.tell(1, 1, 0, Acks({1: 1}))
    after = AckRings(words[:], 3, 1, 2)
    assert not after.waiting
    assert not one.tell(1, 1, 0, Acks({2: 2}))  # it has not begun, whatever its former life said
    after.set_awake(True)
    assert one.tell(1, 1, 0, Acks({3: 3}))  # one that has not looked at the board yet
    assert one.tell(1, 2, 0, Acks({4: 4}))
    assert after.take() == [(0, 1, 0, Acks({4: 4}))]


def test_who_dies_while_writing_has_told_nothing(words: memoryview) -> None:
    before, other = rings(words, 0), rings(words, 1)
    head = words[3 + 3 * 1 + 0]
    assert before.tell(1, 1, 0, Acks({1: 1, 2: 2}))
    words[3 + 3 * 1 + 0] = head  # all but the last word of it was written
    assert not other.waiting
    after = rings(words, 0, incarnation=2)
    assert after.tell(1, 1, 0, Acks({3: 3}))
    assert other.take() == [(0, 2, 0, Acks({3: 3}))]


# Memory that shows writes in another order


def ring_at(words: memoryview, receiver: int, sender: int) -> int:
    return 3 + 2 * 9 + (3 * receiver + sender) * ring_words(3)


@pytest.mark.parametrize("late", range(6))
def test_a_chunk_of_which_a_word_is_not_to_be_seen_yet_waits(words: memoryview, late: int) -> None:
    one, other = rings(words, 0), rings(words, 1)
    assert one.tell(1, 1, 3, Acks({1: 1}))
    place = ring_at(words, 1, 0) + late
    whole = words[place]
    words[place] = 0
    assert other.take() == []
    assert other.take() == []
    assert other.waiting
    assert other.pass_over() == []
    assert one.tell(1, 1, 4, Acks({2: 2}))
    words[place] = whole
    assert numbers_of(other) == [3, 4]
    assert other.pass_over() == []


def test_a_chunk_of_the_round_before_is_no_chunk_of_this(words: memoryview) -> None:
    """What stood in the same place is whole, and has been taken already."""
    one, other = rings(words, 0), rings(words, 1)
    ring = words[ring_at(words, 1, 0) :][: ring_words(3)]
    most = dict.fromkeys(range((len(ring) - 4) // 2), 5)
    assert 4 + 2 * len(most) == len(ring), "it fills the ring"
    shown = []
    for number in (1, 2):
        assert one.tell(1, 1, number, Acks(most))
        shown.append(ring.tolist())
        if number == 1:
            assert numbers_of(other) == [1]
            other.confirm()
    for content, numbers in zip(shown, ([], [2]), strict=True):
        for place, word in enumerate(content):
            ring[place] = word
        assert numbers_of(other) == numbers


def test_a_chunk_that_never_comes_whole_stops_its_ring_until_it_is_passed_over(words: memoryview) -> None:
    one, other, third = (rings(words, me) for me in range(3))
    assert one.tell(1, 1, 0, Acks({1: 1}))
    words[ring_at(words, 1, 0) + 1] ^= 1
    while one.tell(1, 1, 0, Acks({1: 1})):
        assert other.take() == []
    assert third.tell(1, 1, 0, Acks({7: 7}))
    assert other.take() == [(2, 1, 0, Acks({7: 7}))]
    assert other.pass_over() == []
    assert other.waiting
    assert other.pass_over() == [0]
    assert not other.waiting
    other.confirm()
    assert other.pass_over() == []
    assert one.tell(1, 1, 9, Acks({1: 1}))
    assert numbers_of(other) == [9]
