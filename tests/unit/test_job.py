"""A job as its client sees it: its board at rest, and the topology that moves under it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.engine.api.config import Config
from squall.engine.api.plan import ExecutorPlan
from squall.engine.errors import UsageError
from squall.engine.flow.anchoring import Acks
from squall.ipc.ack_rings import AckRings
from squall.ipc.board import DEAD, READY, SLOT_PROGRESS, SLOT_QUIET, STARTING, Board, BoardMissing
from squall.ipc.rundir import RunDir
from squall.scheduler.client.job import Job, restart_of
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.common.messages import (
    Assignment,
    ClusterState,
    ComponentSummary,
    RestartRecord,
    SlotRef,
    TopologyRecord,
    TopologyState,
)
from squall.scheduler.records.topology_view import TopologyView


def record(*components: ComponentSummary) -> TopologyRecord:
    return TopologyRecord("t-1", "t", "ACTIVE", Config().to_dict(), list(components), "0" * 64, [], 0.0)


RECORD, SINK_RECORD = record(), record(ComponentSummary("sink", "bolt", 1, 1))
SINK_ALONE = Assignment("t-1", 1, [SlotRef("n", 1)], [[ExecutorPlan("sink", 1, 1)]])


class Answers:
    """In the place of Nimbus: what it answers each time it is asked, the last for ever."""

    run_dir: RunDir

    def __init__(self, *versions: int | None) -> None:
        self.versions = list(versions)
        self.asked = 0

    def get_topology(self, name: str) -> TopologyState:
        version = self.versions.pop(0) if len(self.versions) > 1 else self.versions[0]
        self.asked += 1
        assignment = None if version is None else Assignment("t-1", version, [SlotRef("n", 1)], [[]])
        return TopologyState(RECORD, assignment, {}, [])


def job(tmp_path: Path, answers: Answers, *boards: int) -> Job:
    answers.run_dir = RunDir.create(str(tmp_path / "run"))
    for version in boards:
        Board.create(answers.run_dir.board("t-1", version), 1, 1).close()
    return Job(answers, RECORD)  # type: ignore[arg-type]


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


class Wakes:
    """In the place of Nimbus: a worker takes a turn whenever it is asked but the first time, and is not quiet then."""

    def __init__(self, run_dir: RunDir, board: Board) -> None:
        self.run_dir, self.board = run_dir, board
        self.asked = 0

    def get_topology(self, name: str) -> TopologyState:
        self.board.column(SLOT_QUIET)[0] = not self.asked
        self.asked += 1
        return TopologyState(SINK_RECORD, SINK_ALONE, {}, [])


def test_what_a_dead_worker_alone_knew_is_unknown_in_the_report_of_a_drained_topology_that_takes_a_turn(
    tmp_path: Path,
) -> None:
    run_dir = RunDir.create(str(tmp_path / "run"))
    board = Board.create(run_dir.board("t-1", 1), 1, 1)
    board.set_slot(0, 2, READY, 100)
    board.flow(0)[0] = 397  # sent to the sink, whose worker's first life has not told how many it executed
    wakes = Wakes(run_dir, board)
    job = Job(wakes, SINK_RECORD)  # type: ignore[arg-type]
    report = job.wait_until_drained(10)
    assert wakes.asked > 1
    assert not job.is_idle()
    assert report.drained
    assert (report.untracked.unknown, report.untracked.unprocessed) == (397, 0)
    job.close()
    board.close()


@pytest.mark.parametrize(
    ("ready", "working", "told"),
    [(0.02, 0.03, (0.02, 0.03)), (0.16, 0.14, (0.14, 0.14)), (None, 0.1, (None, 0.1))],
)
def test_no_worker_is_at_work_before_it_is_ready(
    ready: float | None, working: float | None, told: tuple[float | None, float | None]
) -> None:
    restart = restart_of(RestartRecord("n:1", 1, "killed", "", 105.5, ready), working, started=100.0)
    assert (restart.at_secs, restart.ready_after_secs, restart.working_after_secs) == (5.5, *told)


class Leaves(NimbusClient):
    """In the place of a connection: the topology goes right after the first look."""

    def __init__(self) -> None:
        self.looks = [[RECORD], []]

    def get_cluster(self) -> ClusterState:
        return ClusterState({}, self.looks.pop(0), [])

    def get_topology(self, name: str) -> TopologyState:
        raise UsageError(f"there is no topology named {name!r}")


def test_a_topology_that_goes_at_the_limit_is_gone() -> None:
    Leaves().await_removed("t-1", 0.0)


@pytest.fixture
def view(tmp_path: Path) -> Iterator[TopologyView]:
    """Two workers that are ready and quiet."""
    board = Board.create(tmp_path / "board", 2, 1)
    for slot in range(2):
        board.set_slot(slot, 1, READY, 100 + slot)
        board.column(SLOT_QUIET)[slot] = 1
    yield TopologyView(board, Assignment("t-1", 1, [SlotRef("n", 1), SlotRef("n", 2)], [[], []]), RECORD)
    board.close()


def assert_at_work(view: TopologyView, why: str) -> None:
    """Or at rest, for no reason."""
    assert view.undrained() == why
    assert (view.is_idle(), view.is_drained(), view.is_at_rest()) == (not why,) * 3


def test_a_worker_that_does_not_say_that_it_is_quiet_is_at_work(view: TopologyView) -> None:
    assert_at_work(view, "")
    view.board.column(SLOT_QUIET)[1] = 0
    assert_at_work(view, "n:2 is at work")


def test_frames_are_under_way_until_their_receiver_has_processed_them(view: TopologyView) -> None:
    at = view.board.link_at(0, 1)
    view.board.words[at] = 7
    assert_at_work(view, "frames or acks are under way")
    view.board.words[at + 1] = 7
    assert_at_work(view, "")


def test_acks_are_under_way_until_their_receiver_has_published_what_came_of_them(view: TopologyView) -> None:
    one, other = (AckRings(view.board.rings, 2, slot, 1) for slot in range(2))
    one.set_awake(True)
    assert other.tell(0, 1, 0, Acks({5: 5}))
    assert_at_work(view, "frames or acks are under way")
    one.take()
    assert_at_work(view, "frames or acks are under way")
    one.confirm()
    assert_at_work(view, "")
    one.close()
    other.close()


@pytest.mark.parametrize("word", [None, SLOT_QUIET, SLOT_PROGRESS])
def test_readings_are_of_an_idle_topology_only_if_no_turn_was_taken_meanwhile(
    view: TopologyView, word: int | None
) -> None:
    class Looked(TopologyView):
        def readings(self) -> list[object]:  # type: ignore[override]
            if word is not None:
                self.board.column(word)[0] ^= 1
            return []

    assert Looked(view.board, view.assignment, RECORD).readings_and_idle() == ([], word is None)


def test_the_board_shows_what_is_being_opened_of_the_present_worker_only(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board", 1, 2)
    placed = Assignment("t-1", 1, [SlotRef("n", 1)], [[ExecutorPlan("enrich", 1, 2)]])
    view = TopologyView(board, placed, record(ComponentSummary("enrich", "bolt", 2, 1)))
    second = 10**9
    board.set_opening(0, 3, 2, second)
    for incarnation, state, method in ((3, STARTING, "prepare"), (3, READY, "setup"), (3, DEAD, ""), (4, STARTING, "")):
        board.set_slot(0, incarnation, state, 100)
        assert view.opening(0, 4 * second) == (("enrich", 2, method, 3.0) if method else None)
        assert view.undrained().startswith("enrich[2] is still in setup; ") is (method == "setup")
    board.close()
