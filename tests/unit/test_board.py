"""The status board: one writer's words are another process's readings, and only a whole board can be attached."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from squall import ClusterError
from squall.engine.report.metrics import HISTOGRAM_BUCKETS, TASK_COUNTERS
from squall.ipc import ack_rings
from squall.ipc.ack_rings import rings_words
from squall.ipc.board import (
    HEADER_WORDS,
    READY,
    SLOT_PID,
    SLOT_STARTED,
    SLOT_WORDS,
    STARTING,
    STOPPED,
    TASK_WORDS,
    VERSION,
    Board,
)
from squall.ipc.board import SlotCell as Cell
from tests.unit.full_disk import no_room


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "board"


@pytest.fixture
def board(path: Path) -> Iterator[Board]:
    with closing(Board.create(path, n_slots=3, n_tasks=5)) as board:
        yield board


def test_file_is_private_and_as_large_as_the_layout_says(board: Board) -> None:
    status = os.stat(board.path)
    assert status.st_mode & 0o777 == 0o600
    words = HEADER_WORDS + 3 * SLOT_WORDS + 2 * 3 * 3 + rings_words(3) + 30 + 5 * (2 + TASK_WORDS)
    assert status.st_size == 8 * words
    assert status.st_blocks * 512 >= status.st_size  # no hole that a full disk could turn into SIGBUS
    assert os.listdir(board.path.parent) == ["board"]


def test_rows_do_not_overlap(board: Board) -> None:
    """Every word that has a name, named once: writing a different number into each shows every clash."""
    places = [board.slot_at(i) + word for i in range(3) for word in range(SLOT_WORDS)]
    places += [board.link_at(i, j) + end for i in range(3) for j in range(3) for end in range(2)]
    views = [board.rings, *(board.flow(slot) for slot in range(3)), board.full, board.waits]
    for mark, view in enumerate(views, 1):
        view[0] = view[-1] = mark
        first = board.words.tolist().index(mark, HEADER_WORDS)
        assert board.words[first + len(view) - 1] == mark
        places += range(first, first + len(view))
    assert board.untracked(1) == (2 + 3 + 4, 0)
    assert board.untracked(5) == (0, 2 + 3 + 4)
    places += [board.task_at(task) + word for task in range(1, 6) for word in range(TASK_WORDS)]
    assert len(set(places)) == len(places)
    assert sorted(places) == list(range(HEADER_WORDS, len(board.words)))


def test_a_board_continues_from_the_one_before_it(board: Board, tmp_path: Path) -> None:
    board.set_slot(2, 7, READY, 1)
    at = board.task_at(5)
    board.words[at], board.words[at + len(TASK_COUNTERS)] = 3, 4
    for n_tasks in (5, 4):
        with closing(Board.create(tmp_path / "after", n_slots=1, n_tasks=n_tasks)) as after:
            if n_tasks == 4:
                with pytest.raises(ClusterError, match=r"after has 4 tasks, .* has 5"):
                    after.continue_from(board)
                continue
            after.continue_from(board)
            assert (after.task_counters(5)[TASK_COUNTERS[0]], after.task_histogram(5)[0]) == (3, 4)
            assert after.slot(0) == Cell(7, STOPPED, 0)


# Files that are no board


def test_board_of_another_version(board: Board) -> None:
    board.words[1] = version = VERSION + 1
    says = f"status board {board.path} has version {version}; this is version {VERSION}"
    with pytest.raises(ClusterError, match=says):
        Board.attach(board.path)


@pytest.mark.parametrize("length", [-1, -8, -4096, 8])
def test_board_of_the_wrong_size(board: Board, length: int) -> None:
    """Mapped all the same, a short board would be a SIGBUS or an IndexError somewhere else, much later."""
    whole = os.path.getsize(board.path)
    damaged = board.path.with_name("damaged")
    damaged.write_bytes((board.path.read_bytes() + bytes(8))[: whole + length])
    with pytest.raises(ClusterError, match=f"has {whole + length} bytes; 3 slots and 5 tasks take {whole}"):
        Board.attach(damaged)


# Creating where it cannot be


def test_full_disk_is_an_error_and_leaves_nothing(path: Path) -> None:
    """A limit on file size stands for a disk without room: both refuse the allocation."""
    says = f"cannot create status board {path} of [0-9]+ bytes: File too large"
    with no_room(64 * 1024), pytest.raises(ClusterError, match=says):
        Board.create(path, n_slots=2, n_tasks=1000)
    assert os.listdir(path.parent) == []


def test_a_row_whose_writer_was_killed_half_way_names_no_process(board: Board) -> None:
    """A supervisor that is killed between two words leaves an old identity beside a new pid."""
    board.set_slot(0, 1, READY, 100, 7)
    half = Cell(1, READY, 0, 0)
    board.column(SLOT_STARTED)[0] = 2 << 48 | 9
    assert board.slot(0) == half
    board.column(SLOT_PID)[0] = 2 << 48 | 200
    assert board.slot(0) == half
    board.set_slot(0, 2, STARTING, 200, 9)
    assert board.slot(0) == Cell(2, STARTING, 200, 9)


def test_the_documented_layout_is_the_one_that_is_mapped() -> None:
    document = Path(ack_rings.__file__).with_name("PROTOCOL.md").read_text().partition("## Status board")[2]
    assert f"| 1 | version, {VERSION} |" in document
    assert set(re.findall(r"\b8 \+ (\d+) [sS]\b", document)) == {str(SLOT_WORDS)}
    words = re.findall(r"^\| (\d+)(?: to (\d+))? \| .* \| (?:worker|supervisor) \|$", document, re.MULTILINE)
    documented = [word for first, last in words for word in range(int(first), int(last or first) + 1)]
    assert documented == list(range(SLOT_WORDS))
    assert f"row of task t, 1 to T: {len(TASK_COUNTERS)} counters, {HISTOGRAM_BUCKETS} buckets" in document
    assert f"+ {TASK_WORDS} (t - 1)" in document
