"""What Nimbus has in files: status boards, code, tasks' state to be removed. Its rows are in `scheduler.store`.

Guarantees: what no topology uses is removed, also what a Nimbus that was killed in the middle of something left behind.

Owner: Nimbus's loop.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from ipc.board import Board
from ipc.rundir import RunDir
from scheduler import task_state
from scheduler.code_store import CodeStore
from scheduler.messages import Assignment, TopologyRecord
from scheduler.nimbus_instruction import CreateBoard
from scheduler.topology_view import TopologyView


class NimbusFiles:
    """Those of one run directory."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._codes = CodeStore(run_dir.code)

    def has_code(self, digest: str) -> bool:
        return digest in self._codes

    def make_board(self, step: CreateBoard) -> None:
        """ClusterError if it cannot be made."""
        former = self._run_dir.board(step.topology_id, step.version - 1)
        board = Board.create(str(self._run_dir.board(step.topology_id, step.version)), step.n_slots, step.n_tasks)
        try:
            if step.version > 1 and former.exists():
                before = Board.attach(str(former))
                try:
                    board.continue_from(before)
                finally:
                    before.close()
        finally:
            board.close()

    def remove_board(self, topology_id: str, version: int) -> None:
        self._run_dir.board(topology_id, version).unlink(missing_ok=True)

    def remove_accounts(self, topology_id: str) -> None:
        """What its workers wrote down for the report: metrics, the last failures. Its dead letters stay."""
        for path in (self._run_dir.metrics(topology_id), self._run_dir.failures(topology_id)):
            shutil.rmtree(path, ignore_errors=True)

    def set_state_aside(self, record: TopologyRecord) -> None:
        """ClusterError if it cannot be. To be followed by one of the next two."""
        task_state.set_aside(self._run_dir, record)

    def put_state_back(self, record: TopologyRecord) -> None:
        task_state.put_back(self._run_dir.set_aside(record.name, record.id))

    def discard_state(self, record: TopologyRecord) -> None:
        task_state.discard(self._run_dir.set_aside(record.name, record.id))

    def settle_state(self, records: Iterable[TopologyRecord]) -> None:
        """What an earlier Nimbus had set aside when it ended."""
        task_state.settle(self._run_dir, records)

    @contextlib.contextmanager
    def view(self, record: TopologyRecord, assignment: Assignment) -> Iterator[TopologyView]:
        """A look at a topology's board. ClusterError if it is not there."""
        board = Board.attach(str(self._run_dir.board(record.id, assignment.version)))
        try:
            yield TopologyView(board, assignment, record)
        finally:
            board.close()

    def keep_boards(self, assignments: Iterable[tuple[str, int]]) -> None:
        """Remove the boards of all but these topologies and versions."""
        known = {self._run_dir.board(topology_id, version) for topology_id, version in assignments}
        for path in self._run_dir.boards.iterdir():
            if path not in known:
                path.unlink()

    def keep_code(self, records: Iterable[TopologyRecord]) -> None:
        """Remove the code that none of these runs."""
        used = set()
        for record in records:
            used |= {record.blob, *(Path(entry).name for entry in record.sys_path if self._codes.owns(entry))}
        self._codes.keep_only(used)
