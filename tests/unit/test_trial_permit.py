"""Turns among workers to try a suspect: one at a time, the earliest first, and only when everybody is ready."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.ipc.board import DEAD, READY, SLOT_EXPLAINED, SLOT_HEARTBEAT_NS, Board
from squall.scheduler.worker.worker_board import BoardTrialPermit

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
def board(tmp_path: Path) -> Iterator[Board]:
    made = Board.create(str(tmp_path / "board"), 3, 1)
    for slot in range(3):
        made.set_slot(slot, 1, READY, 100 + slot)
        made.words[made.slot_at(slot) + SLOT_HEARTBEAT_NS] = BEGIN_NS
    yield made
    made.close()


@pytest.fixture
def turns(board: Board) -> Turns:
    return Turns(board)


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


def test_nobody_is_tried_while_a_worker_is_not_ready(board: Board, turns: Turns) -> None:
    first = turns.all[0]
    first.begin(7)
    turns.wait()
    board.set_slot(2, 1, DEAD, 0)
    assert not first.begin(7)
    board.set_slot(2, 2, READY, 103)
    assert first.begin(7)


def test_everybody_has_come_round_when_each_has_published_once_since(board: Board, turns: Turns) -> None:
    first = turns.all[0]
    since = turns.now_ns
    assert not first.turned_since(since)
    for slot, later_ns in ((1, 5), (2, 9_000_000_000)):
        assert not first.turned_since(since)
        board.words[board.slot_at(slot) + SLOT_HEARTBEAT_NS] = since + later_ns
    assert first.turned_since(since)
    board.set_slot(2, 1, DEAD, 0)
    assert not first.turned_since(since)


def test_a_request_is_withdrawn_with_the_last_task_that_asks(board: Board, turns: Turns) -> None:
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
    assert board.nearer(0, 1)


@pytest.mark.parametrize("bounded", [True, False])
def test_a_death_during_a_trial_is_excused_where_trials_end_in_the_ledger(
    board: Board, bounded: bool
) -> None:
    assert not board.nearer(1, 1)
    BoardTrialPermit(board, 0, bounded).begin(7)
    assert board.nearer(1, 1) is bounded
    # The next incarnation has nothing on trial.
    BoardTrialPermit(board, 0, bounded)
    assert not board.nearer(1, 1)


def test_a_death_by_a_known_tuple_is_excused_for_that_incarnation(board: Board) -> None:
    word = board.slot_at(1) + SLOT_EXPLAINED
    board.words[word] = 4 << 1 | 1
    assert [board.nearer(1, incarnation) for incarnation in (3, 4, 5)] == [False, True, False]
    assert [board.explained(1, incarnation) for incarnation in (3, 4, 5)] == [False, True, False]
    board.words[word] = 4 << 1
    assert (board.nearer(1, 4), board.explained(1, 4)) == (False, True)
    assert not board.explained(0, 0)
