"""Executing batches: kept tuples, untracked ones, exceptions, ticks, and runs whose tuples share an edge."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from squall import BasicCollector, FailedTuple, Failure, Tuple
from squall.engine.core.executor import TaskCrashed
from tests.held import early
from tests.unit.lab import Lab, forwards
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, acks, chain, emits, keeps, refuses

R1, R2, R3 = 1 << 16, 2 << 16, 3 << 16
E1, E2, E3 = 0x1111, 0x2222, 0x4444


def wrong_x(how: Exception) -> Callable[[Any], None]:
    def raises_on_x(value: Any) -> None:
        if value == "x":
            raise how

    return raises_on_x


@pytest.mark.parametrize("how", [FailedTuple("no"), ValueError("no")])
@pytest.mark.parametrize("basic", [True, False])
def test_an_untracked_tuple_that_fails_leaves_no_mark_on_the_next(how: Exception, basic: bool) -> None:
    lab = Lab(refuses(wrong_x(how), basic), on_error="fail")
    lab.tree(R1, E1)
    lab.receive("xa", (0, 0, 1), (R1, E1, 1))
    assert lab.spout.acked == [R1]
    lab.tree(R2, E2)
    lab.receive("x", (0, 0, 1))
    lab.receive("b", (R2, E2, 1))
    assert lab.spout.acked == [R1, R2]
    assert lab.spout.failures == []


# ---- kept tuples ----


@pytest.mark.parametrize("basic", [True, False])
def test_a_kept_tuple_does_not_change(basic: bool) -> None:
    def keep(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
        if tup[0] not in "bd":
            bolt.kept.append(tup)

    lab = Lab(DoesBasic(keep) if basic else Does(keeps))
    lab.tree(R1, E1)
    lab.receive("abcdef", (R1, E1, 6))
    expected = "acef" if basic else "abcdef"
    assert [tup[0] for tup in lab.bolt.kept] == list(expected)
    assert all(tup.source_component == "spout" for tup in lab.bolt.kept)


# ---- exceptions ----


@pytest.mark.parametrize("basic", [True, False])
def test_an_exception_names_its_task_and_fails_its_tree_at_once(basic: bool) -> None:
    lab = Lab(refuses(wrong_x(KeyError("what")), basic))
    lab.tree(R1, E1)
    lab.tree(R2, E2)
    with pytest.raises(TaskCrashed) as crashed:
        lab.receive("axab", (R1, E1, 3), (R2, E2, 1))
    where = rf"\({re.escape(__file__)}, line \d+, in raises_on_x\)"
    assert re.fullmatch(rf"bolt-1\[{lab.at}\] raised KeyError: 'what' in execute {where}", str(crashed.value))
    assert isinstance(crashed.value.__cause__, KeyError)
    assert "raises_on_x" in crashed.value.traceback_text
    # What had been done before the worker ends is brought to the acker: nothing of the run passes for success.
    lab.core.tracking.settle()
    assert lab.spout.failures == [(R1, Failure("exception", "bolt-1", lab.at, "node-1:6700", "KeyError: 'what'"))]
    assert lab.spout.acked == []
    assert lab.stats().errors == 1


# ---- ticks ----


def test_ticks_come_in_time_to_every_task() -> None:
    ticks = []

    def execute(bolt: Does, tup: Tuple) -> None:
        ticks.append((bolt.context.task_id, tup.is_tick, tup["rate_secs"], tup.source_component, tup.source_task))
        bolt.collector.ack(tup)

    builder = chain(Feeder())
    builder.set_bolt("bolt", Does(execute), 1, 2).shuffle_grouping("spout").set_config(tick_tuple_freq_secs=2)
    builder.set_bolt("other", Does(acks)).shuffle_grouping("spout")
    rig = Rig(builder)
    rig.advance(1.999)
    assert ticks == []
    assert rig.core.next_deadline_ns == rig.clock.now_ns() + 1_000_000
    rig.advance(0.001)
    assert ticks == [(task, True, 2.0, "__system", -1) for task in rig.plan.tasks_of("bolt")]
    rig.advance(7)  # late ones are not made up for
    assert len(ticks) == 4
    rig.advance(2)
    assert len(ticks) == 6
    assert rig.core.quiet


@pytest.mark.parametrize("how", [FailedTuple("no"), ValueError("no")])
@pytest.mark.parametrize("basic", [True, False])
def test_a_tick_that_fails_is_no_message_that_failed(how: Exception, basic: bool) -> None:
    lab = Lab(refuses(lambda secs: wrong_x(how)("x"), basic), on_error="fail", tick_tuple_freq_secs=1)
    lab.advance(1)
    assert len(lab.bolt.seen) == 1
    stats = lab.stats()
    assert stats.executed == 0
    array("Q", stats.counters())  # the board holds no negative numbers
    assert lab.spout.failures == []


@pytest.mark.parametrize("how", [FailedTuple("cannot parse x"), KeyError("x")])
@pytest.mark.parametrize(("basic", "last"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_a_tuple_that_fails_fails_one_tree_and_the_rest_is_executed(
    position: int, basic: bool, last: bool, how: Exception
) -> None:
    lab = Lab(refuses(wrong_x(how), basic), last, on_error="fail")
    lab.tree(R1, E1)
    lab.tree(R2, E2)
    values, (failed, other) = list("aaab"), (R1, R2) if position < 3 else (R2, R1)
    values[position] = "x"
    lab.receive("".join(values), (R1, E1, 3), (R2, E2, 1))
    assert lab.bolt.seen == [(value,) for value in values]
    told = {"failed": "cannot parse x"} if isinstance(how, FailedTuple) else {"exception": "KeyError: 'x'"}
    [(reason, error)] = told.items()
    assert lab.spout.failures == [(failed, Failure(reason, "bolt-1", lab.at, "node-1:6700", error))]
    assert lab.spout.acked == [other]
    assert [text.partition(" (")[0] for _, _, text in lab.errors] == [error] * (reason == "exception")
    stats = lab.stats()
    assert (stats.executed, stats.acked, stats.failed, stats.errors) == (4, 3, 1, len(lab.errors))


# ---- runs of several trees ----


@pytest.mark.parametrize("bolt", [DoesBasic(forwards), Does(emits(1))])
def test_a_run_of_two_trees_goes_on_as_one_and_acks_both(bolt: Any) -> None:
    lab = Lab(bolt)
    lab.tree(R1, E1)
    lab.tree(R2, E2)
    lab.receive("a", (R1, E1, 1), others={0: ((R2, E2),)})
    assert lab.spout.acked == []
    lab.finish()
    assert sorted(lab.spout.acked) == [R1, R2]
    assert early(lab.acker) == 0
