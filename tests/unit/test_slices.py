"""Long batches are executed in slices: what a slow bolt has done is acked before it goes on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from squall.engine.flow import batch as flow
from squall.engine.flow.batch import Batch
from tests.unit.lab import batch_of
from tests.unit.rig import Feeder, Rig, chain, refuses


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


Divide = Callable[[list[Batch], random.Random], list[Batch]]


def slices(batches: list[Batch], dice: random.Random) -> list[Batch]:
    batch, found = batches[0], []
    while len(batch.rows) > 1 and dice.random() < 0.9:
        found.append(batch.split(dice.randrange(1, len(batch.rows)), lambda: dice.getrandbits(64)))
    return [*found, batch]


def joined(batches: list[Batch], dice: random.Random) -> list[Batch]:
    return [Batch.join(batches)]


def joined_slices(batches: list[Batch], dice: random.Random) -> list[Batch]:
    return slices(joined(batches, dice), dice)


def pieces(batches: list[Batch], dice: random.Random) -> list[Batch]:
    found = list(batches[0].pieces(lambda: dice.getrandbits(64)))
    assert all(len(piece.rows) <= 3 for piece in found)
    return found


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize(("divide", "most"), [(slices, 1), (joined, 4), (joined_slices, 4), (pieces, 1)])
def test_parts_are_the_batch_and_each_has_a_share_of_its_edges(
    divide: Divide, most: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree is processed when all parts are acked, whichever is acked last, and not before."""
    monkeypatch.setattr(flow, "LONG_ROWS", 3)
    dice = random.Random(seed)
    batches = [some_batch(dice) for _ in range(most)]
    rows, whole = [row for batch in batches for row in row_roots(batch)], xors(*batches)
    parts = divide(batches, dice)
    assert [row for part in parts for row in row_roots(part)] == rows
    assert xors(*parts) == whole
    for part in parts:
        assert all(xors(part).values())
        assert part.starts[0] == 0
        assert (part.source, part.stream, part.target) == (1, "default", 2)


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
    [(_, task)] = rig.core.spout_tasks.values()
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
