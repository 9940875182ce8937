"""A worker's right to live, how it steps aside for its own threads, and the turns of workers to try a suspect: one at
a time, the earliest first, and only when everybody is ready."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from squall.ipc.board import DEAD, READY, SLOT_EXPLAINED, SLOT_HEARTBEAT_NS, STARTING, STOPPED, Board
from squall.scheduler.worker.loop import StepAside
from squall.scheduler.worker.self_watch import Lease, LeaseEnded
from squall.scheduler.worker.worker_board import BoardTrialPermit


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    (tmp_path / "boards").mkdir()
    made = Board.create(tmp_path / "boards" / "x-1-00000000", 2, 3)
    made.set_slot(1, 4, READY, 77, 5)
    yield made
    made.close()


def test_it_holds_while_the_board_is_there_and_names_this_incarnation(board: Board) -> None:
    lease = Lease(board, 1, 4)
    lease.check()
    board.set_slot(1, 4, STARTING, 0)
    lease.check()


@pytest.mark.parametrize(
    ("lose", "why"),
    [
        (lambda board: board.path.unlink(), "the topology, or this version of it, is no more"),
        (lambda board: board.set_slot(1, 5, STARTING, 0), "incarnation 5 has taken the place of incarnation 4"),
        (lambda board: board.set_slot(1, 4, DEAD, 77, 5), "incarnation 4 has been given up for dead"),
        (lambda board: board.set_slot(1, 4, STOPPED, 77, 5), "incarnation 4 has been given up for dead"),
    ],
)
def test_it_ends_with_the_board_with_another_incarnation_and_when_it_is_taken_for_dead(
    board: Board, lose: Callable[[Board], object], why: str
) -> None:
    lose(board)
    with pytest.raises(LeaseEnded, match=why):
        Lease(board, 1, 4).check()


def test_it_begins_when_the_supervisor_knows_the_worker(board: Board) -> None:
    lease = Lease(board, 1, 5)
    assert not lease.has_begun(78), "another incarnation has the slot"
    board.set_slot(1, 5, STARTING, 0)
    assert not lease.has_begun(78)
    board.set_slot(1, 5, STARTING, 78, 6)
    assert lease.has_begun(78)
    assert not lease.has_begun(79)
    board.set_slot(1, 6, STARTING, 0)
    with pytest.raises(LeaseEnded, match="incarnation 6 has taken the place of incarnation 5"):
        lease.has_begun(78)


MS = 1_000_000


class Processor:
    """Another thread has it for so long, when it is left to it."""

    def __init__(self, others_ns: int) -> None:
        self.others_ns = others_ns
        self.now_ns = 0
        self.away_ns = 0

    def step(self) -> None:
        self.now_ns += self.others_ns
        self.away_ns += self.others_ns

    def work(self, total_ns: int, piece_ns: int) -> int:
        """How often it stepped aside."""
        steps = 0
        step_aside = StepAside(self.step, lambda: self.now_ns)
        while self.now_ns < total_ns:
            self.now_ns += piece_ns
            before = self.away_ns
            step_aside()
            steps += self.away_ns > before
        return steps


@pytest.mark.parametrize("others_ns", [1_000, 100_000, 300_000])
def test_a_short_while_is_given_each_time(others_ns: int) -> None:
    assert Processor(others_ns).work(100 * (MS + others_ns), MS) == 100


@pytest.mark.parametrize("others_ns", [301_000, 3 * MS, 50 * MS])
def test_long_ones_take_a_twentieth_of_the_time(others_ns: int) -> None:
    processor = Processor(others_ns)
    assert processor.work(10_000 * MS, MS // 10) > 5
    assert 0.03 < processor.away_ns / processor.now_ns <= 0.05


def test_after_a_long_one_short_ones_are_given_again() -> None:
    processor = Processor(3 * MS)
    step_aside = StepAside(processor.step, lambda: processor.now_ns)
    step_aside()
    processor.others_ns = MS // 10
    step_aside()
    assert processor.away_ns == 3 * MS
    processor.now_ns += 60 * MS
    step_aside()
    step_aside()
    assert processor.away_ns == 3 * MS + 2 * MS // 10


# ---- turns to try a suspect ----

BEGIN_NS = 1_000_000_000
LATER_NS = 2_000_000
"""Requests that were made so long ago are seen by everybody."""


class Turns:
    """The turns of three workers, by a clock that stands."""

    def __init__(self, board: Board) -> None:
        self.now_ns = BEGIN_NS
        self.all = [BoardTrialPermit(board, slot, bounded=True, now_ns=lambda: self.now_ns) for slot in range(3)]

    def wait(self) -> None:
        self.now_ns += LATER_NS


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[Board]:
    made = Board.create(tmp_path / "board", 3, 1)
    for slot in range(3):
        made.set_slot(slot, 1, READY, 100 + slot)
        made.column(SLOT_HEARTBEAT_NS)[slot] = BEGIN_NS
    yield made
    made.close()


@pytest.fixture
def turns(ready: Board) -> Turns:
    return Turns(ready)


def test_one_at_a_time_and_the_earliest_first(turns: Turns) -> None:
    first, second, third = turns.all
    assert not second.begin(7)
    turns.now_ns += 10
    assert not first.begin(7)
    # A request that was made a moment ago may not be the earliest: others may not be visible yet.
    assert not second.begin(7)
    turns.wait()
    assert not first.begin(7)
    assert second.begin(7)
    assert not second.begin(8)
    assert not third.begin(7)
    turns.wait()
    assert not third.begin(7)
    second.end(7)
    assert not second.begin(7)  # asks anew, behind the others
    turns.wait()
    assert not second.begin(7)
    assert not third.begin(7)
    assert first.begin(7)


def test_nobody_is_tried_while_a_worker_is_not_ready(ready: Board, turns: Turns) -> None:
    first = turns.all[0]
    first.begin(7)
    turns.wait()
    ready.set_slot(2, 1, DEAD, 0)
    assert not first.begin(7)
    ready.set_slot(2, 2, READY, 103)
    assert first.begin(7)


def test_everybody_has_come_round_when_each_has_published_once_since(ready: Board, turns: Turns) -> None:
    first = turns.all[0]
    since = turns.now_ns
    assert not first.turned_since(since)
    for slot, later_ns in ((1, 5), (2, 9_000_000_000)):
        assert not first.turned_since(since)
        ready.column(SLOT_HEARTBEAT_NS)[slot] = since + later_ns
    assert first.turned_since(since)
    ready.set_slot(2, 1, DEAD, 0)
    assert not first.turned_since(since)


def test_a_request_is_withdrawn_with_the_last_task_that_asks(ready: Board, turns: Turns) -> None:
    first, second, _ = turns.all
    first.begin(7)
    first.begin(8)
    second.begin(7)
    turns.wait()
    first.end(7)
    assert not second.begin(7)
    first.end(8)
    assert second.begin(7)
    second.end(8)  # not its permit
    assert second.owner == 7
    assert ready.nearer(0, 1)


@pytest.mark.parametrize("bounded", [True, False])
def test_a_death_during_a_trial_is_excused_where_trials_end_in_the_ledger(
    ready: Board, bounded: bool
) -> None:
    assert not ready.nearer(1, 1)
    BoardTrialPermit(ready, 0, bounded).begin(7)
    assert ready.nearer(1, 1) is bounded
    # The next incarnation has nothing on trial.
    BoardTrialPermit(ready, 0, bounded)
    assert not ready.nearer(1, 1)


def test_a_death_by_a_known_tuple_is_excused_for_that_incarnation(ready: Board) -> None:
    word = ready.slot_at(1) + SLOT_EXPLAINED
    ready.words[word] = 4 << 1 | 1
    for tells in (ready.nearer, ready.explained):
        assert [tells(1, incarnation) for incarnation in (3, 4, 5)] == [False, True, False]
    ready.words[word] = 4 << 1
    assert (ready.nearer(1, 4), ready.explained(1, 4)) == (False, True)
    assert not ready.explained(0, 0)
