"""Which incarnations are dead, and which bit stands for whom."""

from __future__ import annotations

import pytest

from squall.engine.tracking.peers import Peers

ME, OTHER, THIRD = 0, 1, 2


@pytest.fixture
def peers() -> Peers:
    peers = Peers(3, ME)
    peers.update(ME, 1, True)
    peers.update(OTHER, 1, True)
    peers.update(THIRD, 1, True)
    return peers


def test_every_slot_and_incarnation_has_a_bit_of_its_own(peers: Peers) -> None:
    bits = set()
    for incarnation in range(1, 9):
        for worker in (OTHER, THIRD):
            peers.update(worker, incarnation, True)
            bits.add(peers.bit(worker))
    assert len(bits) == 16
    assert all(bit.bit_count() == 1 for bit in bits)


def test_what_is_sent_after_a_death_belongs_to_the_next_incarnation(peers: Peers) -> None:
    assert peers.update(OTHER, 1, False)
    assert not peers.is_alive(OTHER)
    meanwhile = peers.bit(OTHER)
    assert not peers.update(OTHER, 2, True), "no second death"
    assert peers.bit(OTHER) == meanwhile
    assert not meanwhile & peers.dead_mask


def test_a_replacement_that_died_unseen_takes_what_was_for_it_along(peers: Peers) -> None:
    peers.update(OTHER, 1, False)
    for_the_second = peers.bit(OTHER)
    assert peers.update(OTHER, 3, True)
    assert for_the_second & peers.dead_mask
    assert not peers.bit(OTHER) & peers.dead_mask


def test_the_present_bit_is_never_dead_however_often_a_slot_dies(peers: Peers) -> None:
    recent: list[int] = []
    for incarnation in range(1, 60):
        peers.update(OTHER, incarnation, True)
        recent.append(peers.bit(OTHER))
        assert not recent[-1] & peers.dead_mask
        assert all(bit & peers.dead_mask for bit in recent[-9:-1])
        assert peers.update(OTHER, incarnation, False)
        assert recent[-1] & peers.dead_mask
        assert not (peers.bit(OTHER) | peers.bit(THIRD)) & peers.dead_mask
