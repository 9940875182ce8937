"""Makes and removes Nimbus's files: status boards, code, tasks' state. Its rows are in `scheduler.nimbus.store`.

Guarantees: files that no topology uses are removed, also those of a Nimbus that was killed in the middle
(see `scheduler.nimbus.leftovers`), but never the files of a topology that is not known to have been deleted.

Code is removed soon after it became unused, but not while a client holds the code store for a submission
(`CodeStore.held`), nor while there are topologies that Nimbus does not know.

Thread: Nimbus's loop.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.board import Board
from squall.ipc.rundir import RunDir
from squall.scheduler.common import environment
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.messages import Assignment, SubmitTopology, TopologyRecord
from squall.scheduler.nimbus import task_state
from squall.scheduler.nimbus.decisions import Nimbus
from squall.scheduler.nimbus.instruction import CreateBoard
from squall.scheduler.records.topology_view import TopologyView

log = logging.getLogger(__name__)


class NimbusFiles:
    """The files of one run directory."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._codes = CodeStore(run_dir.code)

    def check_code(self, request: SubmitTopology) -> None:
        """UsageError or ClusterError unless all code of a submission is there and whole."""
        for digest in (request.blob, *self._names(request.sys_path)):
            if digest not in self._codes:
                raise UsageError(f"code {digest} of topology {request.name!r:.80} is not in the code store")
            self._codes.get(digest)

    def make_board(self, step: CreateBoard) -> None:
        """Make a status board. ClusterError if it cannot be made."""
        former = self._run_dir.board(step.topology_id, step.version - 1)
        board = Board.create(str(self._run_dir.board(step.topology_id, step.version)), step.n_slots, step.n_tasks)
        try:
            if step.version > 1 and former.exists():
                _take_over(board, former)
        finally:
            board.close()

    def remove_board(self, topology_id: str, version: int) -> None:
        self._run_dir.board(topology_id, version).unlink(missing_ok=True)

    def remove_unknown(self, topology_id: str) -> None:
        """Remove the files of a topology that is not in the store, but for its dead letters and its tasks' state."""
        for path in self._run_dir.boards.glob(f"{glob.escape(self._run_dir.board(topology_id).name)}*"):
            path.unlink(missing_ok=True)
        self.remove_accounts(topology_id)

    def remove_accounts(self, topology_id: str) -> None:
        """Remove its variables, and its workers' files for the report: metrics, failures. Its dead letters stay."""
        for path in (self._run_dir.metrics(topology_id), self._run_dir.failures(topology_id)):
            shutil.rmtree(path, ignore_errors=True)
        environment.forget_environment(self._run_dir, topology_id)

    def set_state_aside(self, record: TopologyRecord) -> None:
        """Set earlier tasks' state aside; ClusterError if it cannot be. Follow it by one of the next two."""
        task_state.set_aside(self._run_dir, record)

    def put_state_back(self, record: TopologyRecord) -> None:
        task_state.put_back(self._run_dir.set_aside(record.name, record.id))

    def discard_state(self, record: TopologyRecord) -> None:
        task_state.discard(self._run_dir.set_aside(record.name, record.id))

    def tidy_state(self, records: Iterable[TopologyRecord], unknown: Collection[str]) -> None:
        """Finish with state that an earlier Nimbus had set aside; for an unknown topology it stays aside."""
        task_state.tidy(self._run_dir, records, unknown)

    def keep_environment(self, topology_id: str, variables: Mapping[str, str]) -> None:
        """Keep the variables of an accepted topology; ClusterError if they cannot be."""
        if variables:
            environment.keep_environment(self._run_dir, topology_id, variables)

    def forget_environment(self, topology_id: str) -> None:
        environment.forget_environment(self._run_dir, topology_id)

    def tidy_environments(self, records: Iterable[TopologyRecord], unknown: Collection[str]) -> None:
        """Remove variables that an earlier Nimbus has left; workers of unknown topologies may need theirs."""
        known = (record.id for record in _with_successors(records))
        environment.tidy_environments(self._run_dir, {*unknown, *known})

    @contextlib.contextmanager
    def view(self, record: TopologyRecord, assignment: Assignment) -> Iterator[TopologyView]:
        """Open a topology's board for a look. ClusterError if there is none."""
        board = Board.attach(str(self._run_dir.board(record.id, assignment.version)))
        try:
            yield TopologyView(board, assignment, record)
        finally:
            board.close()

    def keep_code(self, records: Iterable[TopologyRecord]) -> bool:
        """Remove code that none of these runs, nor will. False, and nothing is removed, while a submission is under
        way."""
        used = set()
        for record in _with_successors(records):
            used |= {record.blob, *self._names(record.sys_path)}
        return self._codes.keep_only(used)

    def _names(self, sys_path: Iterable[str]) -> list[str]:
        """The entries of an import path that are in the code store."""
        return [Path(entry).name for entry in sys_path if self._codes.owns(entry)]


def _with_successors(records: Iterable[TopologyRecord]) -> Iterator[TopologyRecord]:
    for record in records:
        yield record
        if record.successor is not None:
            yield record.successor.topology


def _take_over(board: Board, former: Path) -> None:
    """Copy totals and incarnations from the former board; if it is damaged, they begin anew."""
    try:
        before = Board.attach(str(former))
    except ClusterError as error:
        log.error("%s; the totals begin at 0 with %s", error, board.path)
        return
    try:
        board.continue_from(before)
    finally:
        before.close()


RETRY_SECS = 0.1
"""Between two tries: a submission takes some milliseconds from its first file to Nimbus's answer."""


class CodeSweep:
    """A sweep that is due or not."""

    def __init__(self, nimbus: Nimbus, files: NimbusFiles) -> None:
        self._nimbus = nimbus
        self._files = files
        self._due_at: float | None = None

    def ask(self, now: float) -> None:
        """Ask for a sweep: code may have become unused."""
        self._due_at = now
        self.tick(now)

    def tick(self, now: float) -> None:
        """Sweep if it is due."""
        if self._due_at is None or now < self._due_at or self._nimbus.unknown:
            return
        done = self._files.keep_code(self._nimbus.cluster().topologies)
        self._due_at = None if done else now + RETRY_SECS

    def next_deadline(self) -> float | None:
        return None if self._nimbus.unknown else self._due_at
