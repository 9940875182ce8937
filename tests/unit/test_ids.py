"""Edge ids and root ids: never 0, never the same twice, the acker in the low bits."""

from __future__ import annotations

import os
from itertools import islice

import pytest

from squall.engine.flow.ids import ACKER_MASK, EdgeIds, root_ids


def test_edge_ids_are_64_bits_and_differ() -> None:
    ids = EdgeIds()
    drawn = [ids.next() for _ in range(5000)]
    assert len(set(drawn)) == len(drawn)
    assert all(0 < edge < 1 << 64 for edge in drawn)
    assert any(edge >> 63 for edge in drawn)


def test_zero_is_never_drawn() -> None:
    draws = [os.urandom, bytes, bytes]

    def draw(size: int) -> bytes:
        return draws.pop()(size)

    assert EdgeIds(draw).next() != 0
    assert not draws


def test_refilling_keeps_the_pool_that_others_hold() -> None:
    ids = EdgeIds()
    pool = ids.pool
    ids.refill()
    assert ids.pool is pool
    assert len(pool) > 1000
    assert ids.next() not in pool


@pytest.mark.parametrize("acker", [0, 1, 5, 1023])
def test_roots_name_their_acker_and_differ(acker: int) -> None:
    roots = list(islice(root_ids(acker), 1000))
    assert len(set(roots)) == 1000
    assert all(0 < root < 1 << 64 for root in roots)
    assert {root & ACKER_MASK for root in roots} == {acker}


@pytest.mark.parametrize("drawn", [b"\x00" * 8, b"\xff" * 8])
def test_roots_from_the_edges_of_the_range_fit(drawn: bytes) -> None:
    roots = list(islice(root_ids(3, lambda size: drawn), 100_000))
    assert 0 < roots[0] < roots[-1] < 1 << 64
