"""A job seen from its client, while the topology moves under it."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.engine.api.config import Config
from squall.ipc.board import Board, BoardMissing
from squall.ipc.rundir import RunDir
from squall.scheduler.client.job import Job
from squall.scheduler.common.messages import Assignment, SlotRef, TopologyRecord, TopologyState

RECORD = TopologyRecord("t-1", "t", "ACTIVE", Config().to_dict(), [], "0" * 64, [], 0.0)


class Answers:
    """In the place of Nimbus: what it answers each time it is asked, the last for ever."""

    def __init__(self, *versions: int | None) -> None:
        self.versions = list(versions)
        self.asked = 0

    def get_topology(self, name: str) -> TopologyState:
        version = self.versions.pop(0) if len(self.versions) > 1 else self.versions[0]
        self.asked += 1
        assignment = None if version is None else Assignment("t-1", version, [SlotRef("n", 1)], [[]])
        return TopologyState(RECORD, assignment, {}, [])


def job(tmp_path: Path, answers: Answers, *boards: int) -> Job:
    run_dir = RunDir.create(str(tmp_path / "run"))
    for version in boards:
        Board.create(str(run_dir.board("t-1", version)), 1, 1).close()
    return Job(answers, RECORD, run_dir)  # type: ignore[arg-type]


def test_a_topology_that_moved_after_nimbus_answered_is_found_where_it_is(tmp_path: Path) -> None:
    answers = Answers(1, 2, 3)
    view = job(tmp_path, answers, 3).view()
    assert view is not None
    assert view.assignment.version == 3
    assert answers.asked == 3
    view.board.close()


def test_one_that_waits_for_a_slot_by_then_has_no_board(tmp_path: Path) -> None:
    assert job(tmp_path, Answers(1, None)).view() is None


def test_a_board_that_is_really_missing_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(BoardMissing, match=r"t-1.* does not exist"):
        job(tmp_path, Answers(1)).readings()
