"""How many rows a batch bolt is given in a call."""

from __future__ import annotations

import random

import pytest

from squall.engine.core.call_cost import CallCost

MS = 1_000_000
QUEUE = 65_536


@pytest.mark.parametrize("row_us", [0, 0.2, 2, 50])
@pytest.mark.parametrize("fixed_ms", [0.01, 1, 4, 50, 500])
def test_ten_calls_find_nearly_the_best_rate(fixed_ms: float, row_us: float) -> None:
    """With calls that take up to a third longer by chance: the machine is busy."""
    dice = random.Random(1)
    cost, rows = CallCost(5 * MS), 1
    for _ in range(10):
        rows = min(QUEUE, rows)
        took_ns = round((fixed_ms * MS + row_us * 1000 * rows) * dice.uniform(1, 1.3)) or 1
        rows = cost.called(rows, took_ns, rows)
    rows = min(QUEUE, rows)
    best_ms = fixed_ms / QUEUE + row_us / 1000
    assert best_ms / (fixed_ms / rows + row_us / 1000) >= 0.7
    assert row_us * rows / 1000 <= 2 * max(5, 4 * fixed_ms, row_us / 1000)


def test_rows_that_take_long_are_given_one_by_one() -> None:
    cost, rows, calls = CallCost(5 * MS), 1, []
    for _ in range(200):
        calls.append(rows)
        rows = cost.called(rows, 20 * MS * rows, rows)
    assert sum(calls[10:]) / len(calls[10:]) < 1.3
