"""Which incarnations are dead, and which bit stands for whom; the rest is found out by the schedules of tests/sim."""

from __future__ import annotations

from squall.engine.tracking.peers import Peers

ME, OTHER, THIRD = 0, 1, 2


def test_the_present_bit_is_never_dead_however_often_a_slot_dies() -> None:
    peers, recent = Peers(3, ME), list[int]()
    for worker in (ME, OTHER, THIRD):
        peers.update(worker, 1, True)
    for incarnation in range(1, 60):
        peers.update(OTHER, incarnation, True)
        recent.append(peers.bit(OTHER))
        assert not recent[-1] & peers.dead_mask
        assert all(bit & peers.dead_mask for bit in recent[-9:-1])
        assert peers.update(OTHER, incarnation, False)
        assert recent[-1] & peers.dead_mask
        assert not (peers.bit(OTHER) | peers.bit(THIRD)) & peers.dead_mask
