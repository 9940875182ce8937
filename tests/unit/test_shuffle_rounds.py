"""Shuffles that follow the waits of their targets."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall import TopologyBuilder
from squall.engine.flow.shuffle_rounds import HORIZON_NS, TOLERANCE_NS, Rounds, shares_of
from tests.unit.rig import Does, Feeder, Rig, acks, work

T = TypeVar("T")
MS = 1_000_000


def rounds_of(choices: Sequence[T]) -> Rounds[T]:
    return Rounds(range(len(choices)), choices.__getitem__, partial(random.Random, 1))


def taken(choose: Callable[[object], T], count: int) -> list[T]:
    return [choose(("values",)) for _ in range(count)]


@pytest.mark.parametrize("n_targets", [1, 2, 3, 7, 300])
def test_every_target_comes_once_in_each_round(n_targets: int) -> None:
    choose = rounds_of(range(n_targets)).chooser()
    rounds = [[choose(()) for _ in range(n_targets)] for _ in range(700 // n_targets + 2)]
    assert sorted(rounds[0]) == list(range(n_targets))
    assert all(one == rounds[0] for one in rounds)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20))
def test_the_longer_the_wait_the_smaller_the_share(waits: list[int]) -> None:
    shares = shares_of(waits)
    if shares is None:
        assert max(waits) - min(waits) <= TOLERANCE_NS
        return
    by_wait = [share for _, share in sorted(zip(waits, shares, strict=True), key=lambda pair: pair[0])]
    assert all(shorter >= longer for shorter, longer in pairwise(by_wait))
    assert by_wait[0] > 0
    assert all(not share for wait, share in zip(waits, shares, strict=True) if wait >= min(waits) + HORIZON_NS)


def test_targets_come_by_their_shares_and_evenly_spread() -> None:
    rounds = rounds_of("abc")
    choose = rounds.chooser()
    rounds.balance((16, 8, 0))
    got = taken(choose, 240)
    assert Counter(got) == {"a": 160, "b": 80}
    assert all(Counter(got[at : at + 3])["b"] == 1 for at in range(0, 240, 3))


def test_a_worker_prefers_the_task_that_does_not_keep_tuples_waiting() -> None:
    """Of two tasks in one worker, one has a queue."""
    spout = Feeder()
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    builder.set_bolt("bolt", Does(acks), parallelism=2).shuffle_grouping("spout")
    rig = Rig(builder, threads=True)
    first, second = rig.plan.tasks_of("bolt")
    assert sorted(rig.core.balance.waits_ns()) == [first, second]
    busy = rig.core.bolt_tasks[first]
    busy.row_ns, busy.received = 10 * MS, busy.received + 3
    waits = rig.core.balance.waits_ns()
    assert waits[first] - waits[second] == 30 * MS
    rig.core.balance.follow(waits.__getitem__)
    busy.received -= 3
    for number in range(16):  # the first turn of a worker
        spout.feed(number, id=number)
    work(rig.core)
    assert [rig.core.stats[task].executed for task in (first, second)] == [0, 16]
