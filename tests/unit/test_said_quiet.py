"""A worker takes back that it is quiet before what it does shows on the board."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from squall.engine.api.config import Config
from squall.engine.report.account import EMITTED, TRACKED
from squall.ipc.board import READY, SLOT_PROGRESS, SLOT_QUIET, Board
from squall.scheduler.common.messages import Assignment, SlotRef, TopologyRecord
from squall.scheduler.records.topology_view import TopologyView
from tests.unit.rig import Does, Feeder, Rig, acks, chain


class Watched(list[int]):
    """Words that tell, before each change, what is at `index`."""

    def __init__(self, size: int, told: Callable[[int], None]) -> None:
        super().__init__([0] * size)
        self._told = told

    def __setitem__(self, index: int, value: int) -> None:  # type: ignore[override]
        self._told(index)
        super().__setitem__(index, value)


def test_before_an_emit_shows_in_the_account() -> None:
    spout = Feeder()
    quiet = [1]
    rig = Rig(chain(spout, Does(acks)), around={"said_quiet": quiet})
    [(_, task)] = rig.core.spout_tasks.values()
    seen: list[tuple[int, int]] = []
    task.stats.account = Watched(len(task.stats.account), lambda index: seen.append((index, quiet[0])))
    rig.settle()
    assert quiet == [1]
    spout.feed("x", id=1)
    rig.settle()
    assert seen == [(EMITTED, 0), (TRACKED, 0)]
    quiet[0] = 1
    rig.settle()
    assert quiet == [1]


def test_before_a_tuple_without_a_tree_shows_as_sent() -> None:
    spout = Feeder()
    quiet = [1]
    seen: list[int] = []
    untracked = Watched(20, lambda index: seen.append(quiet[0]))
    rig = Rig(chain(spout, Does(acks)), around={"said_quiet": quiet, "untracked": untracked})
    spout.feed("x")
    rig.settle()
    assert seen == [0]


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    """One worker that is ready and quiet."""
    board = Board.create(str(tmp_path / "board"), 1, 1)
    board.set_slot(0, 1, READY, 100)
    board.said_quiet(0)[0] = 1
    yield board
    board.close()


@pytest.mark.parametrize("word", [None, SLOT_QUIET, SLOT_PROGRESS])
def test_readings_are_of_an_idle_topology_only_if_no_turn_was_taken_meanwhile(board: Board, word: int | None) -> None:
    record = TopologyRecord("t-1", "t", "ACTIVE", Config().to_dict(), [], "0" * 64, [], 0.0)

    class Looked(TopologyView):
        def readings(self) -> list[object]:  # type: ignore[override]
            if word is not None:
                self.board.words[self.board.slot_at(0) + word] ^= 1
            return []

    view = Looked(board, Assignment("t-1", 1, [SlotRef("n", 1)], [[]]), record)
    assert view.readings_and_idle() == ([], word is None)
