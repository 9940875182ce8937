"""Ackers: a tree is done when its XOR is zero, ids never repeat, and a pending tree costs what is promised."""

from __future__ import annotations

import os
import pickle
from itertools import islice

import pytest

from benchmarks.acker_memory import GOAL_BYTES, acker_bytes, pending_bytes
from squall.engine.flow.anchoring import Acks
from squall.engine.flow.ids import ACKER_MASK, ALONE, Block, EdgeIds, root_ids
from squall.engine.tracking.acker import Acker
from tests.held import early

ROOT, TASK = 1 << 16, 9
def ack(acker: Acker, root: int, value: int, mask: int = 0) -> None:
    acker.ack(Acks({root: value}, {root: mask} if mask else {}))


def test_large_numbers_keep_apart() -> None:
    acker = Acker()
    edge, task, mask = (1 << 64) - 1, (1 << 31) - 1, 1 << 300
    acker.init(ROOT, edge, task, mask)
    for _ in range(2):
        acker.rotate()  # its age is kept apart, too
    ack(acker, ROOT, 1, mask << 1)
    assert acker.reset(ROOT) == task
    ack(acker, ROOT, edge ^ 1)
    assert acker.answers == [(task, ROOT, ALONE, None)]


def test_a_tree_that_is_given_up_in_its_block_tells_who_holds_a_part_of_it() -> None:
    acker, block = Acker(), Block(ROOT, 2)
    acker.init_block(block, 1 << 64 | 1, TASK, {4: 1 << 8})
    assert [*map(acker.forget, block.roots(range(2)))] == [0, 4]


# ---- size ----


def test_a_tree_of_a_hundred_thousand_tuples_takes_no_more_room_than_one_of_two() -> None:
    acker, edges = Acker(), EdgeIds()
    edge = edges.next()
    acker.init(ROOT, edge, TASK, 0b11)

    def grow(edge: int, tuples: int) -> int:
        for _ in range(tuples):
            child = edges.next()
            ack(acker, ROOT, edge ^ child, mask=0b110)
            edge = child
        return edge

    def room() -> int:
        return len(pickle.dumps(acker))

    edge = grow(edge, 2)
    before = room()
    edge = grow(edge, 100_000)
    assert abs(room() - before) <= 8  # the leading bytes of an XOR may be zero
    assert (len(acker), early(acker), acker.answers) == (1, 0, [])
    ack(acker, ROOT, edge)
    assert acker.answers == [(TASK, ROOT, ALONE, None)]


# ---- random trees ----


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


TREES = 10_940
"""Just past an enlargement of the acker's dict: its worst."""


@pytest.mark.parametrize("mask", [0, 1 << 3])
def test_a_pending_tree_costs_its_acker_no_more_than_promised(mask: int) -> None:
    assert acker_bytes(TREES, mask) <= GOAL_BYTES


def test_the_pending_table_costs_about_as_much() -> None:
    assert pending_bytes(TREES) <= 200
