"""The bytes that a pending tree costs stay within what is promised (`python -m benchmarks.acker_memory`)."""

from __future__ import annotations

import pytest

from benchmarks.acker_memory import GOAL_BYTES, acker_bytes, pending_bytes

TREES = 10_940
"""Just past an enlargement of the acker's dict: its worst."""


@pytest.mark.parametrize("mask", [0, 1 << 3])
def test_a_pending_tree_costs_its_acker_no_more_than_promised(mask: int) -> None:
    assert acker_bytes(TREES, mask) <= GOAL_BYTES


def test_the_size_of_a_tree_does_not_matter() -> None:
    assert acker_bytes(1000, 1 << 3, tuples=50) == pytest.approx(acker_bytes(1000, 1 << 3), rel=0.05)


def test_the_pending_table_costs_about_as_much() -> None:
    assert pending_bytes(TREES) <= 200
