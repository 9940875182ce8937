"""A worker's right to live, and how it steps aside for its own threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from squall.ipc.board import DEAD, READY, STARTING, STOPPED, Board
from squall.scheduler.worker.lease import Lease, LeaseEnded
from squall.scheduler.worker.loop import StepAside


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


@pytest.mark.parametrize(
    ("lose", "why"),
    [
        (lambda board: Path(board.path).unlink(), "the topology, or this version of it, is no more"),
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
