"""Long batches are executed in slices: what a slow bolt has done is acked before it goes on."""

from __future__ import annotations

import random
from typing import Any

import pytest

from squall.engine.api.collectors import BasicCollector
from squall.engine.api.tuple import Tuple
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


@pytest.mark.parametrize("seed", SEEDS)
def test_joined_slices_are_the_batch_and_each_keeps_its_edges(seed: int) -> None:
    dice = random.Random(seed)
    batches = [some_batch(dice) for _ in range(dice.randrange(2, 5))]
    rows, whole = [row for batch in batches for row in row_roots(batch)], xors(*batches)
    joined = Batch.join(batches)
    assert row_roots(joined) == rows
    assert xors(joined) == whole
    if len(joined.rows) > 1:
        head = joined.split(dice.randrange(1, len(joined.rows)), lambda: dice.getrandbits(64))
        assert row_roots(head) + row_roots(joined) == rows
        assert xors(head, joined) == whole


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
