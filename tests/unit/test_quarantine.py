"""Suspects go out one at a time while the rest flows; letters that were given back go out until they are acked."""

from __future__ import annotations

from typing import Any

import pytest

from squall.engine.api.failure import TIMEOUT, WORKER_DIED, Failure
from squall.engine.flow.routed import Routed
from squall.engine.tracking.instruction import Letter
from squall.engine.tracking.open_messages import OpenMessages
from squall.engine.tracking.quarantine import OwnPermit
from tests.unit.rig import STREAMS, Does, Feeder, Rig, acks, chain, keeps

DIED = Failure(WORKER_DIED, worker="node-1:6701")


class Lab(Rig):
    """spout -> a bolt that keeps everything."""

    def __init__(self, **settings: Any) -> None:
        self.spout = Feeder(STREAMS)
        self.bolt = Does(keeps)
        super().__init__(chain(self.spout, self.bolt), **settings)
        ((_, self.task),) = self.core.spout_tasks.values()

    @property
    def table(self) -> OpenMessages:
        return self.task.pending

    def emit(self, *ids: int) -> None:
        for message_id in ids:
            self.spout.feed(message_id, id=message_id)
        self.settle()

    def die(self) -> None:
        """A worker that held everything under way dies, and the spout emits all of it again."""
        self.spout.failures.clear()
        for root, _ in self.open_trees():
            self.table.failed(root, DIED)
        for message_id, _ in self.spout.failures:
            self.spout.feed(message_id, id=message_id)
        self.bolt.kept.clear()
        self.settle()

    def ack(self, index: int = 0) -> None:
        self.user("bolt-1").collector.ack(self.bolt.kept.pop(index))
        self.settle()

    @property
    def under_way(self) -> list[Any]:
        return [tree[0] for _, tree in self.open_trees()]

    def open_trees(self) -> list[tuple[int, Any]]:
        return [*self.table.table.blocks, *self.table.trees.items()]


def test_suspects_go_out_one_at_a_time_and_the_rest_flows() -> None:
    lab = Lab()
    lab.emit(1, 2, 3)
    lab.die()
    assert lab.under_way == [1, 2, 3]
    lab.die()
    assert lab.under_way == [1]
    lab.emit(4, 5)
    assert lab.under_way == [1, 4, 5]
    # What is held back is pending all the same.
    assert lab.pending == 5
    lab.ack()
    assert lab.under_way == [4, 5, 2]
    lab.ack(2)
    lab.ack(2)
    assert (lab.under_way, lab.spout.acked) == ([4, 5], [1, 2, 3])
    assert lab.table.attempts.held_back == set()


class Watched(OwnPermit):
    """Turns in a topology that has other workers."""

    well = True

    def turned_since(self, at_ns: int) -> bool:
        return self.well


def hung(**settings: Any) -> tuple[Lab, Watched]:
    """1 and 2 are suspects, 1 is on trial and has timed out in a worker that has not been heard of since."""
    lab, permit = Lab(message_timeout_secs=10, **settings), Watched()
    lab.table.permit = permit
    lab.table.forget = lambda root: 2
    lab.emit(1, 2)
    lab.die()
    lab.die()
    assert lab.under_way == [1]
    time_out(lab, permit)
    return lab, permit


def time_out(lab: Lab, permit: Watched) -> None:
    permit.well = False
    lab.spout.failures.clear()
    lab.advance(11)
    ((message_id, failure),) = lab.spout.failures
    assert failure.reason == TIMEOUT
    lab.bolt.kept.clear()
    lab.emit(message_id)


def test_nobody_else_is_tried_until_what_timed_out_on_trial_has_killed_or_not() -> None:
    lab, permit = hung()
    assert lab.under_way == []
    assert lab.pending == 2
    lab.emit(3)
    assert lab.under_way == [3]
    permit.well = True
    lab.settle()
    assert lab.under_way[:2] == [3, 2]


def test_what_times_out_on_trial_and_then_kills_is_a_dead_letter() -> None:
    lab, permit = hung(max_crashes=4)
    # A worker that held no part of it says nothing.
    lab.table.worker_died(1, DIED, ())
    assert lab.table.attempts.strikes(1) == 2
    lab.table.worker_died(2, DIED, ())
    lab.table.worker_died(2, DIED, ())
    assert (lab.table.attempts.strikes(1), lab.table.attempts.strikes(2)) == (3, 2)
    permit.well = True
    lab.settle()
    assert lab.under_way == [2]
    lab.ack()
    assert lab.under_way == [1]
    time_out(lab, permit)
    lab.table.worker_died(2, DIED, ())
    permit.well = True
    lab.settle()
    assert [letter[2] for letter in lab.dead_letters] == [1]
    assert (lab.under_way, lab.pending) == ([], 0)


def test_what_the_dead_worker_holds_again_is_struck_once_and_what_another_holds_too() -> None:
    lab = Lab(message_timeout_secs=10)
    lab.table.forget = lambda root: 2
    lab.emit(1, 2)
    lab.advance(11)
    lab.emit(1, 2)
    (first, _), (second, _) = [(root, tree[0]) for root, tree in lab.table.trees.items()]
    lab.table.worker_died(2, DIED, {first})
    lab.table.failed(first, DIED)
    assert (lab.table.attempts.strikes(1), lab.table.attempts.strikes(2)) == (1, 1)
    assert second in lab.table.trees


def test_a_quarantine_leaves_only_the_permit_that_it_asked_for() -> None:
    class Noted(OwnPermit):
        left = 0

        def leave(self) -> None:
            self.left += 1

    lab, permit = Lab(), Noted()
    lab.table.permit = permit
    lab.table.fate.quarantine.waiting.append(Letter(7, (7,), lambda: None, due_ns=lab.clock.now_ns() + 10**9))
    lab.settle()
    assert permit.left == 0
    lab.emit(1)
    lab.die()
    lab.die()
    assert (lab.under_way, permit.left) == ([1], 0)
    lab.ack()
    assert permit.left == 1


@pytest.mark.parametrize("poison", [1, 511, 1000])
def test_where_trees_take_long_suspects_are_tried_in_groups(poison: int) -> None:
    """Thousands of suspects are through after a few rounds, and the poison is found after a few deaths more."""
    lab = Lab(max_crashes=5, message_timeout_secs=3600)
    lab.emit(*range(1, 1001))
    lab.die()
    lab.die()
    rounds = deaths = 0
    while lab.pending:
        rounds += 1
        lab.clock.advance(0.5)
        if poison in lab.under_way:
            deaths += 1
            lab.die()
        else:
            for _ in range(len(lab.under_way)):
                lab.ack()
    assert [letter[2] for letter in lab.dead_letters] == [poison]
    assert sorted(lab.spout.acked) == list(range(1, 1001))
    assert deaths <= 3 + 9  # alone at last; 2 ** 9 < 1000
    assert rounds < 60


def test_a_deactivated_spout_still_gets_rid_of_what_it_holds() -> None:
    lab = Lab()
    lab.emit(1, 2)
    lab.die()
    lab.die()
    lab.core.set_active(False)
    assert lab.pending == 2
    lab.ack()
    lab.ack()
    assert lab.spout.acked == [1, 2]


def test_held_back_messages_count_against_the_limit() -> None:
    lab = Lab(max_spout_pending=2)
    lab.emit(1, 2)
    lab.die()
    lab.die()
    lab.emit(3)
    assert lab.under_way == [1]
    lab.ack()
    assert sorted(lab.under_way) == [2, 3]


def test_nothing_of_quarantine_goes_out_while_downstream_is_full() -> None:
    lab = Lab()
    lab.emit(1)
    lab.die()
    lab.congest(True)
    lab.die()
    assert lab.under_way == []
    lab.congest(False)
    lab.settle()
    assert lab.under_way == [1]


class Permit(OwnPermit):
    """Allows when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.mine = False
        self.left = 0

    def begin(self) -> bool:
        return self.mine and super().begin()

    def leave(self) -> None:
        self.left += 1


def test_a_suspect_waits_for_the_topologys_permit() -> None:
    lab = Lab()
    permit = Permit()
    lab.table.permit = permit
    lab.emit(1, 2)
    lab.die()
    lab.die()
    assert lab.under_way == []
    permit.mine = True
    lab.settle()
    assert lab.under_way == [1]
    assert permit.left == 0
    lab.ack()
    lab.ack()
    assert permit.left > 0


def give_back(lab: Lab, values: Any, message_id: Any = "m") -> list[str]:
    closed: list[str] = []
    executor, task = next(iter(lab.core.spout_tasks.values()))
    executor.give_back(task, Letter(message_id, values, lambda: closed.append("closed")))
    lab.settle()
    return closed


def test_a_letter_that_is_given_back_goes_out_until_it_is_acked() -> None:
    lab = Lab()
    closed = give_back(lab, ("again",))
    assert lab.under_way == ["m"]
    lab.user("bolt-1").collector.fail(lab.bolt.kept.pop())
    lab.settle()
    # Later, and without the spout: it is done with this message since it was told of the dead letter.
    assert (lab.under_way, lab.pending, closed) == ([], 1, [])
    assert lab.spout.failures == []
    lab.advance(0.01)
    assert lab.under_way == ["m"]
    lab.ack()
    assert closed == ["closed"]
    assert (lab.spout.acked, lab.pending) == ([], 0)
    assert not lab.table.attempts.alert


def test_attempts_start_again_for_a_letter_that_is_given_back() -> None:
    lab = Lab(max_attempts=2)
    closed = give_back(lab, ("again",))
    for _ in range(2):
        lab.user("bolt-1").collector.fail(lab.bolt.kept.pop())
        lab.settle()
        lab.advance(1)
    assert [(letter[2], letter[4].attempt) for letter in lab.dead_letters] == [("m", 2)]
    assert closed == ["closed"]
    assert lab.pending == 0


def test_a_letter_goes_to_the_stream_it_came_from() -> None:
    spout, sink = Feeder(STREAMS), Does(acks)
    builder = chain(spout)
    builder.set_bolt("pairs", sink).shuffle_grouping("spout", stream="pair")
    rig = Rig(builder)
    executor, task = next(iter(rig.core.spout_tasks.values()))
    executor.give_back(task, Letter("m", Routed.on("pair", None, (1, 2)), lambda: None))
    rig.settle()
    assert sink.seen == [(1, 2)]


def test_a_letter_that_no_longer_fits_goes_back_to_the_ledger() -> None:
    lab = Lab()
    closed = give_back(lab, Routed.on("gone", None, (1,)))
    ((_, _, message_id, _, failure),) = lab.dead_letters
    assert message_id == "m"
    assert "undeclared stream 'gone'" in failure.error
    assert (closed, lab.pending) == (["closed"], 0)
