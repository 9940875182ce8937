"""Long batches are executed in slices: what a slow bolt has done is acked before it goes on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from squall.engine.api.collectors import BasicCollector
from squall.engine.api.stream import TICK_STREAM
from squall.engine.api.tuple import Tuple
from squall.engine.core.executor import SLICE_NS
from squall.engine.errors import FailedTuple
from squall.engine.flow import batch as batches
from squall.engine.flow.batch import Batch
from tests.unit.lab import batch_of
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, chain, emits

SEEDS = range(50)


def some_batch(dice: random.Random) -> Batch:
    runs = [(dice.getrandbits(64), dice.getrandbits(64), dice.randrange(1, 5)) for _ in range(dice.randrange(1, 12))]
    batch = batch_of([(number,) for number in range(sum(run[2] for run in runs))], runs, 2, 1)
    if dice.random() < 0.5:
        batch.others = {
            run: tuple((dice.getrandbits(64), dice.getrandbits(64)) for _ in range(dice.randrange(1, 3)))
            for run in range(len(runs)) if dice.random() < 0.5
        }
    return batch


def row_roots(batch: Batch) -> list[tuple[Any, ...]]:
    """(row, all roots it belongs to) of each row."""
    found = []
    ends = [*batch.starts[1:], len(batch.rows)]
    for run, (begin, end) in enumerate(zip(batch.starts, ends, strict=True)):
        others = (batch.others or {}).get(run, ())
        found += [(row, batch.roots[run], *(root for root, _ in others)) for row in batch.rows[begin:end]]
    return found


def xors(*batches: Batch) -> dict[int, int]:
    """root -> XOR of the edges it is tracked under."""
    found: dict[int, int] = {}
    for batch in batches:
        pairs = list(zip(batch.roots, batch.edges, strict=True))
        pairs += [pair for others in (batch.others or {}).values() for pair in others]
        for root, edge in pairs:
            found[root] = found.get(root, 0) ^ edge
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_slices_are_the_batch_and_each_has_a_share_of_its_edges(seed: int) -> None:
    """A tree is processed when all slices are acked, whichever is acked last, and not before."""
    dice = random.Random(seed)
    batch = some_batch(dice)
    rows, whole = row_roots(batch), xors(batch)
    slices = []
    while len(batch.rows) > 1 and dice.random() < 0.9:
        slices.append(batch.split(dice.randrange(1, len(batch.rows)), lambda: dice.getrandbits(64)))
    slices.append(batch)
    assert [row for piece in slices for row in row_roots(piece)] == rows
    assert xors(*slices) == whole
    for piece in slices:
        assert all(xors(piece).values())
        assert piece.starts[0] == 0
        assert (piece.source, piece.stream, piece.target) == (1, "default", 2)


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_pieces_are_the_batch_and_each_has_a_share_of_its_edges(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "LONG_ROWS", 3)
    dice = random.Random(seed)
    batch = some_batch(dice)
    rows, whole = row_roots(batch), xors(batch)
    pieces = batch.pieces(lambda: dice.getrandbits(64))
    assert all(len(piece.rows) <= 3 for piece in pieces)
    assert [row for piece in pieces for row in row_roots(piece)] == rows
    assert xors(*pieces) == whole


def test_the_rows_of_one_very_long_call_are_not_moved_for_each_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spout that emits 100,000 tuples in a call: each slice moved all that were left."""
    count, moved = 100_000, [0]

    def counted(batch: Batch, rows: int, cut: Callable[[Batch, int], Batch] = Batch.cut_rows) -> Batch:
        moved[0] += len(batch.rows)
        return cut(batch, rows)

    monkeypatch.setattr(Batch, "cut_rows", counted)
    spout, done = Feeder(), list[int]()
    bolts = Does(emits(count), ("value",)), slow(SLICE_NS / 100e9, True, done)
    rig = Rig(chain(spout, *bolts), threads=True, around={"slice_ns": SLICE_NS})
    spout.feed("x", id=1)
    rig.user("bolt-2").clock = rig.clock
    rig.settle()
    assert spout.acked == [1]
    assert len(done) == count
    assert 0 < moved[0] < 100 * count


def test_an_untracked_run_needs_no_edges() -> None:
    batch = batch_of([(number,) for number in range(4)], [(0, 0, 4)], 2, 1)
    head = batch.split(1, lambda: pytest.fail("drew an edge"))
    assert (head.edges, batch.edges) == ([0], [0])


def fails_first(bolt: Does, tup: Tuple) -> None:
    (bolt.collector.fail if len(bolt.seen) == 1 else bolt.collector.ack)(tup)


def raises_first(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
    if len(bolt.seen) == 1:
        raise FailedTuple("the first")


@pytest.mark.parametrize("bolt", [Does(fails_first), DoesBasic(raises_first)], ids=["plain", "basic"])
def test_a_message_of_which_one_slice_failed_fails(bolt: Does | DoesBasic) -> None:
    spout = Feeder()
    rig = Rig(chain(spout, Does(emits(3), ("value",)), bolt), threads=True)
    spout.feed("x", id=1)
    rig.settle()
    assert spout.acked == []
    assert [message_id for message_id, _ in spout.failures] == [1]


def test_a_message_of_which_a_tuple_of_an_early_slice_is_kept_is_not_acked() -> None:
    def keeps_first(bolt: Does, tup: Tuple) -> None:
        if len(bolt.seen) == 1:
            bolt.kept.append(tup)
        else:
            bolt.collector.ack(tup)

    spout = Feeder()
    rig = Rig(chain(spout, Does(emits(3), ("value",)), Does(keeps_first)), threads=True)
    spout.feed("x", id=1)
    rig.settle()
    assert spout.acked == []
    leaf = rig.user("bolt-2")
    assert len(leaf.seen) == 3
    leaf.collector.ack(leaf.kept[0])
    rig.settle()
    assert spout.acked == [1]


def slow(secs: float, basic: bool, done: list[int]) -> Does | DoesBasic:
    """A bolt that takes so long for each tuple; `clock` is to be set."""

    def plain(bolt: Any, tup: Tuple) -> None:
        bolt.clock.advance(secs)
        done.append(tup[0])
        bolt.collector.ack(tup)

    def simple(bolt: Any, tup: Tuple, collector: BasicCollector) -> None:
        bolt.clock.advance(secs)
        done.append(tup[0])

    return DoesBasic(simple) if basic else Does(plain)


@pytest.mark.parametrize("basic", [False, True])
def test_what_a_slow_bolt_has_done_is_acked_before_it_does_the_rest(basic: bool) -> None:
    done: list[int] = []
    spout = Feeder()
    rig = Rig(chain(spout, slow(0.1, basic, done)), threads=True, message_timeout_secs=600)
    rig.user("bolt-1").clock = rig.clock
    for number in range(40):
        spout.feed(number, id=number)
    steps = 0
    while len(spout.acked) < 40:
        before = rig.clock.now_ns()
        assert rig.step(), "a worker with tuples left has something to do"
        assert rig.clock.now_ns() - before <= 4 * 100_000_000, "a few tuples a step, however many wait"
        assert spout.acked == done
        assert rig.core.backlog == spout_emitted(rig) - len(done)
        steps += 1
    assert done == list(range(40))
    assert steps >= 10
    rig.settle()
    assert rig.core.quiet


def spout_emitted(rig: Rig) -> int:
    return next(iter(rig.core.spout_tasks.values()))[1].collector.emitted


def test_quick_bolts_are_given_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    spout = Feeder()
    rig = Rig(chain(spout, slow(1e-6, True, done)), threads=True)
    rig.user("bolt-1").clock = rig.clock
    splits = []
    cut_rows = Batch.cut_rows

    def counted(batch: Batch, count: int) -> Batch:
        splits.append(count)
        return cut_rows(batch, count)

    monkeypatch.setattr(Batch, "cut_rows", counted)
    for number in range(5000):
        spout.feed(number, id=number)
    rig.settle()
    assert spout.acked == list(range(5000))
    assert splits == [1], "only before anybody knew how quick it is"


def test_a_slow_tick_says_nothing_of_tuples() -> None:
    def execute(bolt: Any, tup: Tuple, collector: BasicCollector) -> None:
        bolt.clock.advance(1 if tup.source_stream == TICK_STREAM else 1e-6)

    spout = Feeder()
    rig = Rig(chain(spout, DoesBasic(execute)), threads=True, tick_tuple_freq_secs=10)
    rig.user("bolt-1").clock = rig.clock
    spout.feed("x", id=0)
    rig.settle()
    (task,) = rig.core.bolt_tasks.values()
    before = task.slice_rows
    assert before > 1
    executed = task.processed
    rig.advance(10)
    assert task.processed == executed + 1
    assert task.slice_rows == before


def test_a_slice_takes_no_longer_than_it_may_when_tuples_take_as_long_as_before() -> None:
    done: list[int] = []
    rig = Rig(chain(Feeder(), slow(0.001, True, done)), threads=True)
    rig.user("bolt-1").clock = rig.clock
    (bolt,) = rig.core.bolts
    (task,) = bolt.tasks
    batch = batch_of([(number,) for number in range(100)], [(0, 0, 100)], task.task, rig.plan.tasks_of("spout")[0])
    took = []
    more = True
    while more:
        before = rig.clock.now_ns()
        more = bolt.process(task, batch)
        took.append(rig.clock.now_ns() - before)
    assert done == list(range(100))
    assert max(took) == SLICE_NS
    assert took[0] == 1_000_000


def test_slow_bolts_end_their_turn_before_they_have_had_all_their_rounds() -> None:
    """What is asked of the worker, and its sign of life, wait for the end of a turn."""
    done: list[int] = []
    spout = Feeder()
    rig = Rig(chain(spout, slow(0.02, True, done)), threads=True)
    rig.user("bolt-1").clock = rig.clock
    for number in range(20):
        spout.feed(number, id=number)
    while len(done) < 20:
        before = len(done)
        assert rig.step()
        assert len(done) == before + 1
        assert not rig.core.ran_dry or len(done) == 20
