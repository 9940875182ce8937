"""The status boards that a node's supervisor writes: one per assignment that its slots work for.

Guarantees: a slot's cell never goes back to an earlier incarnation. A board stays mapped while a slot may need it, even
after Nimbus has removed the file.

Relies on: Nimbus making an assignment's board before it hands out any of its work. Thread: the supervisor's loop.
"""

from __future__ import annotations

from collections.abc import Collection

from squall.engine.errors import ClusterError
from squall.ipc.board import (
    SLOT_AT_HAND,
    SLOT_HEARTBEAT_NS,
    SLOT_RSS_BYTES,
    SLOT_VERDICT,
    SLOT_WORKING_NS,
    Board,
    SlotCell,
)
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import SlotAssignment
from squall.scheduler.records.topology_view import TopologyView
from squall.scheduler.supervisor.death_judge import Totals
from squall.scheduler.supervisor.instruction import SetBoard, SetVerdict
from squall.scheduler.supervisor.worker_life import WorkerRow


class NodeBoards:
    """Boards by topology id and version of the assignment."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._boards: dict[tuple[str, int], Board] = {}

    def admit(self, work: SlotAssignment) -> SlotCell:
        """Map the board that `work` needs; returns its slot's cell. ClusterError if there is no such board or slot."""
        topology_id, version = key = work.topology.id, work.assignment.version
        board = self._boards.get(key)
        if board is not None and not board.is_there and self._run_dir.board(topology_id, version).exists():
            # The mapped board was removed, and Nimbus has made another.
            self._boards.pop(key).close()
            board = None
        if board is None:
            board = self._boards[key] = Board.attach(self._run_dir.board(topology_id, version))
        if not 0 <= work.slot_index < board.n_slots:
            raise ClusterError(f"slot index {work.slot_index} of {topology_id}: its board has {board.n_slots} slots")
        return board.slot(work.slot_index)

    def look(self, work: SlotAssignment) -> WorkerRow:
        """The row of the slot's worker."""
        board = self._boards[work.topology.id, work.assignment.version]
        cell, at, words = board.slot(work.slot_index), board.slot_at(work.slot_index), board.words
        return WorkerRow(
            cell.incarnation, cell.state, board.nearer(work.slot_index, cell.incarnation),
            _code_of(work, board.opening(work.slot_index, cell.incarnation)[0]),
            _code_of(work, words[at + SLOT_AT_HAND]),
            words[at + SLOT_HEARTBEAT_NS], words[at + SLOT_RSS_BYTES], words[at + SLOT_WORKING_NS] / 1e9,
        )

    def totals(self, work: SlotAssignment) -> Totals:
        """Progress of the topology, as its spouts have counted it."""
        view = TopologyView(self._boards[work.topology.id, work.assignment.version], work.assignment, work.topology)
        return Totals(*map(view.spout_total, Totals._fields))

    def write_verdict(self, verdict: SetVerdict) -> None:
        """Write a verdict to the slot's row."""
        board = self._boards[verdict.topology_id, verdict.version]
        board.column(SLOT_VERDICT)[verdict.slot_index] = verdict.deaths << 1 | verdict.hopeless

    def write(self, cell: SetBoard, started_ticks: int) -> bool:
        """Write a slot's cell, with the start time of its process. False if the board has a later incarnation: another
        node has the worker by now."""
        board = self._boards[cell.topology_id, cell.version]
        if board.slot(cell.slot_index).incarnation > cell.incarnation:
            return False
        board.set_slot(cell.slot_index, cell.incarnation, cell.state, cell.pid, started_ticks, cell.accused)
        return True

    def keep_only(self, assignments: Collection[tuple[str, int]]) -> None:
        """Unmap the boards of other assignments."""
        for key in self._boards.keys() - set(assignments):
            self._boards.pop(key).close()


def _code_of(work: SlotAssignment, task: int) -> str:
    for executor in work.assignment.executors[work.slot_index]:
        if task in executor.tasks:
            return f"{executor.component}[{task}]"
    return ""
