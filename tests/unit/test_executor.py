"""Executing batches: kept tuples, untracked ones, exceptions, ticks, and runs whose tuples share an edge."""

from __future__ import annotations

import random
import re
from array import array
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from squall import BasicCollector, FailedTuple, Failure, TopologyBuilder, Tuple
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.pace import CallCost
from squall.engine.flow import batch as flow
from squall.engine.flow.batch import Batch
from tests.held import early
from tests.unit.lab import Lab, batch_of, forwards
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, acks, chain, emits, keeps, refuses

R1, R2, R3 = 1 << 16, 2 << 16, 3 << 16
E1, E2, E3 = 0x1111, 0x2222, 0x4444


def wrong_x(how: Exception) -> Callable[[Any], None]:
    def raises_on_x(value: Any) -> None:
        if value == "x":
            raise how

    return raises_on_x


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


# ---- several tasks ----


@pytest.mark.parametrize("bolt", [Does(emits(1), ("value",)), DoesBasic(forwards, ("value",))])
def test_each_task_of_an_executor_emits_as_itself(bolt: Does | DoesBasic) -> None:
    builder, spout, sink = TopologyBuilder(), Feeder(), Does(keeps)
    builder.set_spout("spout", spout)
    builder.set_bolt("bolt", bolt, 1, tasks=2).all_grouping("spout")
    builder.set_bolt("sink", sink).shuffle_grouping("bolt")
    rig = Rig(builder)
    spout.feed("a", id=1)
    rig.settle()
    assert sorted(tup.source_task for tup in sink.kept) == rig.plan.tasks_of("bolt")


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
    bolt = Does(acks)
    builder = chain(Feeder())
    builder.set_bolt("bolt", bolt, 1, 2).shuffle_grouping("spout").set_config(tick_tuple_freq_secs=2)
    rig = Rig(builder)
    rig.advance(1.999)
    assert bolt.seen == []
    assert rig.core.next_deadline_ns == rig.clock.now_ns() + 1_000_000
    for secs, ticks in ((0.001, 2), (7, 4), (2, 6)):  # late ones are not made up for
        rig.advance(secs)
        assert bolt.seen == [(2.0,)] * ticks
    for index in (0, 1):
        user = rig.user("bolt", index)
        place = (user.context.task_id, user.context.task_index, user.context.worker, user.context.attempt)
        assert (len(user.own), place) == (3, (2 + index, index, "node-1:6700", 1))
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


@pytest.mark.parametrize(("how", "reason", "error"), [
    (FailedTuple("cannot parse x"), "failed", "cannot parse x"), (KeyError("x"), "exception", "KeyError: 'x'"),
])
@pytest.mark.parametrize(("basic", "last"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_a_tuple_that_fails_fails_one_tree_and_the_rest_is_executed(
    position: int, basic: bool, last: bool, how: Exception, reason: str, error: str
) -> None:
    lab = Lab(refuses(wrong_x(how), basic), last, on_error="fail")
    lab.tree(R1, E1)
    lab.tree(R2, E2)
    values, (failed, other) = list("aaab"), (R1, R2) if position < 3 else (R2, R1)
    values[position] = "x"
    lab.receive("".join(values), (R1, E1, 3), (R2, E2, 1))
    assert lab.bolt.seen == [(value,) for value in values]
    assert lab.spout.failures == [(failed, Failure(reason, "bolt-1", lab.at, "node-1:6700", error))]
    assert lab.spout.acked == [other]
    assert [text.partition(" (")[0] for _, _, text in lab.errors] == [error] * (reason == "exception")
    stats = lab.stats()
    assert (stats.executed, stats.acked, stats.failed, stats.errors) == (4, 3, 1, len(lab.errors))


# ---- runs of several trees ----


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("bolt", [DoesBasic(forwards), Does(emits(1))])
def test_a_run_of_two_trees_goes_on_as_one_and_ends_both(bolt: Any, fails: bool) -> None:
    lab = Lab(bolt)
    lab.tree(R1, E1)
    lab.tree(R2, E2)
    lab.receive("a", (R1, E1, 1), others={0: ((R2, E2),)})
    assert lab.spout.acked == []
    if fails:
        lab.user("bolt-2").collector.fail(lab.sink.kept.pop())
    lab.finish()
    assert sorted(lab.spout.acked) == ([] if fails else [R1, R2])
    failure = Failure("failed", "bolt-2", lab.plan.tasks_of("bolt-2")[0], "node-1:6700")
    assert sorted(lab.spout.failures) == ([(R1, failure), (R2, failure)] if fails else [])
    assert early(lab.acker) == 0


# ---- long batches are executed in slices: what a slow bolt has done is acked before it goes on ----


def some_batch(dice: random.Random) -> Batch:
    runs = [(dice.getrandbits(64), dice.getrandbits(64), dice.randrange(1, 5)) for _ in range(dice.randrange(1, 12))]
    batch = batch_of([(number,) for number in range(sum(run[2] for run in runs))], runs, 2, 1)
    if dice.random() < 0.5:
        batch.others = {
            run: tuple((dice.getrandbits(64), dice.getrandbits(64)) for _ in range(dice.randrange(1, 3)))
            for run in range(len(runs)) if dice.random() < 0.5
        }
    return batch


def trees_of(batches: list[Batch]) -> tuple[list[tuple[Any, ...]], dict[int, int]]:
    """Each row with all roots that it belongs to, and of each root the XOR of the edges it is tracked under."""
    rows, tracked = [], defaultdict[int, int](int)
    for batch in batches:
        assert max(batch.others or [0]) < len(batch.roots)
        for run, (begin, end) in enumerate(pairwise([*batch.starts, len(batch.rows)])):
            pairs = [(batch.roots[run], batch.edges[run]), *(batch.others or {}).get(run, ())]
            rows += [(row, *(root for root, _ in pairs)) for row in batch.rows[begin:end]]
            for root, edge in pairs:
                tracked[root] ^= edge
    return rows, tracked


@pytest.mark.parametrize("number", range(100))
def test_parts_are_the_batch_and_each_has_a_share_of_its_edges(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joined, in slices, in pieces: a tree is processed when all parts are acked, in any order, and not before."""
    monkeypatch.setattr(flow, "LONG_ROWS", 3)
    dice = random.Random(number)
    new_edge = partial(dice.getrandbits, 64)
    batches = [some_batch(dice) for _ in range(dice.randrange(1, 5))]
    whole, slices = trees_of(batches), [Batch.join(batches)]
    while len(slices[-1].rows) > 1 and dice.random() < 0.8:
        slices.insert(-1, slices[-1].split(dice.randrange(1, len(slices[-1].rows)), new_edge))
    pieces = [piece for each in slices for piece in each.pieces(new_edge)]
    assert trees_of(pieces) == whole
    for piece in pieces:
        assert len(piece.rows) <= 3
        assert all(trees_of([piece])[1].values())
        assert (piece.starts[0], piece.source, piece.stream, piece.target) == (0, 1, "default", 2)


def slow_rig(secs: float, basic: bool, count: int) -> tuple[Rig, Feeder, list[int]]:
    """A bolt takes so long for each of `count` tuples; what it has done."""
    spout, done = Feeder(), list[int]()

    def take(number: int) -> None:
        rig.clock.advance(secs)
        done.append(number)

    rig = Rig(chain(spout, refuses(take, basic)), threads=True, message_timeout_secs=600)
    for number in range(count):
        spout.feed(number, id=number)
    return rig, spout, done


@pytest.mark.parametrize("basic", [False, True])
def test_what_a_slow_bolt_has_done_is_acked_before_it_does_the_rest(basic: bool) -> None:
    rig, spout, done = slow_rig(0.1, basic, 40)
    task = rig.spout_task
    steps = 0
    while len(spout.acked) < 40:
        before = rig.clock.now_ns()
        assert rig.step(), "a worker with tuples left has something to do"
        assert rig.clock.now_ns() - before <= 4 * 100_000_000, "a few tuples a step, however many wait"
        assert spout.acked == done
        assert rig.core.backlog == task.collector.emitted - len(done)
        steps += 1
    assert done == list(range(40))
    assert steps >= 10
    rig.settle()
    assert rig.core.quiet


def test_slow_bolts_end_their_turn_before_they_have_had_all_their_rounds() -> None:
    """What is asked of the worker, and its sign of life, wait for the end of a turn."""
    rig, _, done = slow_rig(0.02, True, 20)
    while len(done) < 20:
        before = len(done)
        assert rig.step()
        assert len(done) == before + 1
        assert not rig.core.ran_dry or len(done) == 20


def test_a_turn_has_the_emits_that_fit_its_time() -> None:
    pace, still = (Rig(chain(Feeder()), threads=timed).core.pace for timed in (True, False))
    for took_ms, fixed_ms, fit in (1, 0, 64), (60, 25, 64):
        pace.turn_took(took_ms * MS, fixed_ms * MS, 256)
        still.turn_took(MS, 0, 1)
        assert (pace.emits, still.emits) == (fit, 8192)


# ---- how many rows a batch bolt is given in a call ----


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
