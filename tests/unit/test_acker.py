"""The acker: what it answers, in whatever order its messages come (2.3 of the inventory of Storm, and its gap)."""

from __future__ import annotations

import pickle
import random

import pytest

from squall.engine.api.failure import FAILED, WORKER_DIED, Failure
from squall.engine.flow.ids import EdgeIds
from squall.engine.tracking.acker import Acker
from tests.held import early

ROOT, TASK = 1 << 16, 9
WHY = Failure(FAILED, "bolt", 3)


def ack(acker: Acker, root: int, value: int, mask: int = 0) -> None:
    acker.ack_many([(root, value)], {root: mask} if mask else {})


def test_a_tree_without_targets_is_acked_at_once() -> None:
    acker = Acker()
    acker.init(ROOT, 0, TASK)
    assert acker.answers == [(TASK, ROOT, None)]
    assert len(acker) == 0


def test_a_failure_is_answered_at_once_and_once() -> None:
    acker = Acker()
    acker.init(ROOT, 5, TASK)
    acker.fail(ROOT, WHY)
    assert acker.answers == [(TASK, ROOT, WHY)]
    acker.fail(ROOT, WHY)
    ack(acker, ROOT, 5)
    assert len(acker.answers) == 1
    assert len(acker) == 0


def test_a_failure_between_acks_before_init() -> None:
    acker = Acker()
    ack(acker, ROOT, 5)
    acker.fail(ROOT, WHY)
    ack(acker, ROOT, 7)
    acker.init(ROOT, 5 ^ 8, TASK)
    assert acker.answers == [(TASK, ROOT, WHY)]


def test_trees_do_not_touch_each_other() -> None:
    acker = Acker()
    other = 2 << 16
    acker.init(ROOT, 5, TASK)
    acker.init(other, 5, TASK + 1)
    acker.ack_many([(ROOT, 5), (other, 6)], {})
    assert acker.answers == [(TASK, ROOT, None)]
    assert acker.reset(other) == TASK + 1
    assert acker.reset(ROOT) is None


def test_large_numbers_keep_apart() -> None:
    acker = Acker()
    edge, task, mask = (1 << 64) - 1, (1 << 31) - 1, 1 << 300
    acker.init(ROOT, edge, task, mask)
    for _ in range(2):
        acker.rotate()  # its age is kept apart, too
    ack(acker, ROOT, 1, mask << 1)
    assert acker.reset(ROOT) == task
    ack(acker, ROOT, edge ^ 1)
    assert acker.answers == [(task, ROOT, None)]


def test_what_the_spout_gave_up_is_forgotten() -> None:
    acker = Acker()
    acker.init(ROOT, 5, TASK)
    acker.forget(ROOT)
    assert len(acker) == 0
    ack(acker, ROOT, 5)
    assert acker.answers == []


# ---- workers that die ----


def test_exactly_the_trees_that_touched_the_dead_worker_fail() -> None:
    acker = Acker()
    masks = {n << 16: n for n in range(1, 8)}
    for root, mask in masks.items():
        acker.init(root, 5, TASK, mask)
    acker.workers_died(0b010, 0b010)
    failed = {root for _, root, _ in acker.answers}
    assert failed == {root for root, mask in masks.items() if mask & 0b010}
    assert {failure.reason for *_, failure in acker.answers if failure} == {WORKER_DIED}
    assert len(acker) == len(masks) - len(failed)


def test_a_mask_that_came_with_an_ack_counts() -> None:
    acker = Acker()
    acker.init(ROOT, 5, TASK, 0b001)
    ack(acker, ROOT, 5 ^ 7, mask=0b100)
    acker.workers_died(0b100, 0b100)
    assert [failure.reason for *_, failure in acker.answers if failure] == [WORKER_DIED]


@pytest.mark.parametrize("by", ["init", "ack", "ack before init"])
def test_a_mask_that_comes_after_the_death_fails_the_tree(by: str) -> None:
    acker = Acker()
    acker.workers_died(0b100, 0b100)
    if by == "init":
        acker.init(ROOT, 5, TASK, 0b110)
    elif by == "ack":
        acker.init(ROOT, 5, TASK, 0b010)
        ack(acker, ROOT, 5 ^ 7, mask=0b100)
    else:
        ack(acker, ROOT, 5 ^ 7, mask=0b100)
        acker.init(ROOT, 5, TASK, 0b010)
    ((_, _, failure),) = acker.answers
    assert failure is not None
    assert failure.reason == WORKER_DIED
    assert (len(acker), early(acker)) == (0, 0)


def test_a_tree_that_was_processed_before_the_death_is_acked() -> None:
    acker = Acker()
    acker.init(ROOT, 5, TASK, 0b100)
    ack(acker, ROOT, 5)
    acker.workers_died(0b100, 0b100)
    assert acker.answers == [(TASK, ROOT, None)]
    # ... and so is one of which this is learnt afterwards.
    acker.answers.clear()
    ack(acker, ROOT, 5, mask=0b100)
    acker.init(ROOT, 5, TASK, 0b100)
    assert acker.answers == [(TASK, ROOT, None)]


def test_workers_that_come_back_are_no_longer_dead() -> None:
    acker = Acker()
    acker.workers_died(0b100, 0b100)
    acker.workers_died(0, 0)
    acker.init(ROOT, 5, TASK, 0b100)
    assert len(acker) == 1


# ---- what late messages leave behind ----


def test_early_messages_survive_one_rotation() -> None:
    acker = Acker()
    ack(acker, ROOT, 5)
    acker.rotate()
    ack(acker, ROOT, 7)
    acker.rotate()
    acker.init(ROOT, 5 ^ 7, TASK)
    assert acker.answers == [(TASK, ROOT, None)]
    acker.fail(ROOT, WHY)
    acker.rotate()
    acker.init(ROOT, 5, TASK)
    assert acker.answers[-1] == (TASK, ROOT, WHY)


def test_garbage_stays_bounded_while_messages_keep_coming() -> None:
    acker = Acker()
    for n in range(1, 10_001):
        acker.init(n << 16, n, TASK)
        acker.fail(n << 16, WHY)
        ack(acker, n << 16, n)
        if n % 100 == 0:
            acker.rotate()
            assert early(acker) <= 200
        acker.answers.clear()
    acker.rotate()
    acker.rotate()
    assert (len(acker), early(acker)) == (0, 0)


# ---- trees that nobody answers ----


def test_an_init_that_is_repeated_after_the_answer_is_dropped_in_time() -> None:
    acker = Acker()
    acker.init(ROOT, 5, TASK)
    ack(acker, ROOT, 5)
    acker.init(ROOT, 5, TASK)
    assert len(acker) == 1
    for _ in range(3):
        acker.rotate()
    assert len(acker) == 0
    assert acker.answers == [(TASK, ROOT, None)]


def test_a_tree_outlives_its_timeout_twice() -> None:
    acker = Acker()
    for _ in range(2):
        acker.rotate()  # what came before does not make a tree older
    acker.init(ROOT, 5, TASK, 0b1)
    for _ in range(2):
        acker.rotate()
    ack(acker, ROOT, 5 ^ 7, mask=0b10)
    assert len(acker) == 1
    ack(acker, ROOT, 7)
    assert acker.answers == [(TASK, ROOT, None)]


def test_a_tree_that_is_reset_again_and_again_is_kept() -> None:
    acker = Acker()
    acker.init(ROOT, 5, TASK, 0b100)
    for _ in range(5):
        for _ in range(2):
            acker.rotate()
        assert acker.reset(ROOT) == TASK
    acker.workers_died(0b100, 0b100)
    assert [root for _, root, _ in acker.answers] == [ROOT]


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
    assert acker.answers == [(TASK, ROOT, None)]


# ---- random trees ----


class Tree:
    """A random tree and the messages about it that are still to come."""

    def __init__(self, rng: random.Random, edges: EdgeIds, repeats: bool) -> None:
        first = [edges.next() for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        xor = 0
        for edge in first:
            xor ^= edge
        self.messages: list[tuple[str, int]] = [("init", xor)]
        queue, budget = list(first), 6
        while queue:
            value = queue.pop(rng.randrange(len(queue)))
            for _ in range(rng.choice((0, 0, 1, 2)) if budget > 0 else 0):
                budget -= 1
                child = edges.next()
                value ^= child
                queue.append(child)
            self.messages.append(("ack", value))
        self.acks = len(self.messages) - 1
        if repeats:
            # Several: an even number would cancel out in an acker that is not idempotent.
            for _ in range(rng.choice((0, 1, 1, 2))):
                self.messages.append(("init", xor))


def run_trees(
    rng: random.Random, acker: Acker, edges: EdgeIds, repeats: bool, drop: bool = False
) -> tuple[set[int], set[int]]:
    """Deliver the messages of a few trees in a random order; which were acked too early, which never."""
    trees = {n << 16: Tree(rng, edges, repeats) for n in range(1, rng.randrange(2, 5))}
    messages = [(root, kind, value) for root, tree in trees.items() for kind, value in tree.messages]
    rng.shuffle(messages)
    lost = rng.randrange(len(messages)) if drop else None
    delivered = {root: {"init": 0, "ack": 0} for root in trees}
    premature: set[int] = set()
    acked: set[int] = set()
    for index, (root, kind, value) in enumerate(messages):
        if index == lost and kind == "ack":
            continue
        delivered[root][kind] += 1
        if kind == "init":
            acker.init(root, value, TASK)
        else:
            ack(acker, root, value)
        for _, answered, _ in acker.answers:
            complete = delivered[answered]["init"] and delivered[answered]["ack"] == trees[answered].acks
            if not complete and answered not in acked:
                premature.add(answered)
            acked.add(answered)
        acker.answers.clear()
    return premature, set(trees) - acked


@pytest.mark.parametrize("repeats", [False, True])
def test_random_trees_in_any_order_are_acked_when_complete(seed: int, repeats: bool) -> None:
    rng, edges = random.Random(seed), EdgeIds()
    for _ in range(2000):
        assert run_trees(rng, Acker(), edges, repeats) == (set(), set())


def test_a_lost_ack_never_acks(seed: int) -> None:
    rng, edges = random.Random(seed), EdgeIds()
    for _ in range(1000):
        premature, _ = run_trees(rng, Acker(), edges, repeats=True, drop=True)
        assert premature == set()
