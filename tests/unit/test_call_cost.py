"""How many rows a batch bolt is given in a call."""

from __future__ import annotations

import random

import pytest

from squall import TopologyBuilder
from squall.engine.core.call_cost import CallCost
from tests.unit.batch_rig import BatchFeeder, DoesBatch
from tests.unit.rig import Rig

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


def test_time_that_others_took_is_no_fixed_time_of_a_call() -> None:
    """Rows of a word count, of workers that lose their processor in one of five calls: joining them cost a sixth."""
    dice = random.Random(1)
    cost, rows = CallCost(5 * MS), 1
    for call in range(2000):
        rows = min(rows, dice.randint(300, 4000))
        rows = cost.called(rows, 400 * rows + dice.randint(0, 4) // 4 * 4 * MS, rows)
        assert call < 32 or cost.worth_rows == 0


def test_a_call_before_its_turn_was_timed_makes_no_wait_negative() -> None:
    """The board has no room for one: the worker would end."""
    builder = TopologyBuilder()
    builder.set_spout("rows", BatchFeeder())
    builder.set_bolt("bolt", DoesBatch(lambda *_: None), parallelism=2).shuffle_grouping("rows")
    rig = Rig(builder, threads=True)
    for executor in rig.core.in_batches:
        executor.fixed_ns = 50 * MS
    rig.core.end_turn(1 * MS)
    assert min(rig.core.balance.waits_ns().values()) >= 0
