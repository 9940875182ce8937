"""When a worker has no right to live any more, as its board and the board's file say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.ipc.board import DEAD, READY, STARTING, STOPPED, Board
from squall.scheduler.worker.lease import Lease, LeaseEnded


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    (tmp_path / "boards").mkdir()
    made = Board.create(str(tmp_path / "boards" / "x-1-00000000"), 2, 3)
    made.set_slot(1, 4, READY, 77, 5)
    yield made
    made.close()


def test_it_holds_while_the_board_is_there_and_names_this_incarnation(board: Board) -> None:
    lease = Lease(board, 1, 4)
    lease.check()
    board.set_slot(1, 4, STARTING, 0)
    lease.check()


def test_it_ends_with_the_board(board: Board) -> None:
    Path(board.path).unlink()
    with pytest.raises(LeaseEnded, match="the topology, or this version of it, is no more"):
        Lease(board, 1, 4).check()


def test_it_ends_when_another_incarnation_has_the_slot(board: Board) -> None:
    board.set_slot(1, 5, STARTING, 0)
    with pytest.raises(LeaseEnded, match="incarnation 5 has taken the place of incarnation 4"):
        Lease(board, 1, 4).check()


@pytest.mark.parametrize("state", [DEAD, STOPPED])
def test_it_ends_when_it_is_taken_for_dead(board: Board, state: int) -> None:
    board.set_slot(1, 4, state, 77, 5)
    with pytest.raises(LeaseEnded, match="incarnation 4 has been given up for dead"):
        Lease(board, 1, 4).check()


def test_it_begins_when_the_supervisor_knows_the_worker(board: Board) -> None:
    lease = Lease(board, 1, 5)
    assert not lease.has_begun(78), "another incarnation has the slot"
    board.set_slot(1, 5, STARTING, 0)
    assert not lease.has_begun(78)
    board.set_slot(1, 5, STARTING, 78, 6)
    assert lease.has_begun(78)
    assert not lease.has_begun(79)


def test_it_never_begins_for_a_worker_whom_no_supervisor_has_heard_of(board: Board) -> None:
    board.set_slot(1, 5, STARTING, 0)
    lease = Lease(board, 1, 5)
    assert not lease.has_begun(78)
    board.set_slot(1, 6, STARTING, 0)
    with pytest.raises(LeaseEnded, match="incarnation 6 has taken the place of incarnation 5"):
        lease.has_begun(78)
