"""Makes and removes Nimbus's files: status boards, code, tasks' state. Its rows are in `scheduler.nimbus.store`.

Guarantees
    * Files that no topology uses are removed, also those of a Nimbus that was killed in the middle, but never the files
      of a topology that is not known to have been deleted. A board goes only if its topology is known and has another
      one, if it is known to have been deleted, or if no worker ever started on it (its submission was never stored).
    * A known topology whose board is missing or damaged gets a new one: its totals begin at 0, as the log says. Workers
      that run on the lost one end by themselves (`scheduler.worker.self_watch`), and are started again.
    * Code is removed soon after it became unused, but not while a client holds the code store for a submission
      (`CodeStore.held`).
    * The state that tasks of earlier topologies kept under a name is only set aside until the topology that begins anew
      is stored: if Nimbus dies in between, `tidy` removes the state that a stored topology has cast off and puts all
      other state back. Dead letters, and the requests for them, are not tasks' state: they stay in place.

Relies on: no worker of that name running while state is moved; `tidy` being called before any request is served, with
the run directory's lock held. Thread: Nimbus's loop.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.board import STOPPED, Board
from squall.ipc.run_parent import remove_tree
from squall.ipc.rundir import SET_ASIDE, RunDir, named_by
from squall.scheduler.common import environment
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.messages import Assignment, SubmitTopology, TopologyRecord
from squall.scheduler.nimbus.topology_life import TopologyLife
from squall.scheduler.records.topology_files import left_by_earlier
from squall.scheduler.records.topology_view import TopologyView
from squall.scheduler.records.worker_ledger import read_entry

_BOARD = re.compile(r"(?P<id>.+-[0-9]+-[0-9a-f]{8})(\.[0-9]+)?")

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

    def make_board(self, assignment: Assignment) -> None:
        """Make an assignment's status board, which goes on from that of the version before it, if there is one.
        ClusterError if it cannot be made."""
        former = self._run_dir.board(assignment.topology_id, assignment.version - 1)
        with contextlib.closing(_made(self._run_dir, assignment)) as board:
            if assignment.version > 1 and former.exists():
                _take_over(board, former)

    def remove_board(self, topology_id: str, version: int) -> None:
        self._run_dir.board(topology_id, version).unlink(missing_ok=True)

    def remove_unknown(self, topology_id: str) -> None:
        """Remove the files of a topology that is not in the store, but for its dead letters and its tasks' state."""
        for path in self._run_dir.boards.glob(f"{glob.escape(self._run_dir.board(topology_id).name)}*"):
            path.unlink(missing_ok=True)
        self.remove_accounts(topology_id)

    def remove_accounts(self, topology_id: str) -> None:
        """Remove its variables, and its workers' files for the report: metrics, failures. Its dead letters stay."""
        of = self._run_dir
        for path in (of.metrics(topology_id), of.failures(topology_id), of.watches(topology_id)):
            shutil.rmtree(path, ignore_errors=True)
        environment.forget_environment(self._run_dir, topology_id)

    # ---- state that a topology casts off ----

    def set_state_aside(self, name: str, topology_id: str) -> None:
        """Set the state of earlier topologies of this name aside, for one that will be stored next. ClusterError, and
        nothing is moved, if it cannot be. Until that one is stored, the state may be put back."""
        paths = left_by_earlier(self._run_dir, name)
        if not paths:
            return
        aside = self._run_dir.set_aside(name, topology_id)
        try:
            aside.mkdir(mode=0o700)
            for path in paths:
                path.rename(aside / path.name)
        except OSError as error:
            _put_back(aside)
            raise ClusterError(f"cannot set aside the state of an earlier {name}: {error}") from error

    def put_state_back(self, name: str, topology_id: str) -> None:
        """Put state back: the topology was refused. State that cannot be moved stays, and the log says where."""
        _put_back(self._run_dir.set_aside(name, topology_id))

    def discard_state(self, record: TopologyRecord) -> None:
        """Remove state that was set aside: the topology is stored. The next Nimbus tries again if it fails."""
        _discard(self._run_dir.set_aside(record.name, record.id))

    # ---- what an earlier Nimbus has left ----

    def tidy(self, lives: Sequence[TopologyLife], deleted: Collection[str]) -> set[str]:
        """Remove useless files, finish with state that was set aside, and make boards that are missing or damaged;
        returns the ids of unknown topologies, which may be running, so that their boards, variables and state stay."""
        unknown = self._tidy_boards(lives, deleted)
        self._mend_boards(life for life in lives if not life.needs_place)
        records = [life.record for life in lives]
        self._tidy_state({self._run_dir.set_aside(record.name, record.id) for record in records}, unknown)
        environment.tidy_environments(self._run_dir, {*unknown, *(record.id for record in _with_successors(records))})
        return unknown

    def _tidy_boards(self, lives: Iterable[TopologyLife], deleted: Collection[str]) -> set[str]:
        """Remove useless boards; returns the ids of unknown topologies that have one."""
        present = {life.record.id: self._run_dir.board(life.record.id, life.assignment.version).name for life in lives}
        unknown = set()
        for path in sorted(self._run_dir.boards.iterdir()):
            match = _BOARD.fullmatch(path.name)
            topology_id = named_by(match["id"] if match else path.name)
            if topology_id in present and path.name == present[topology_id]:
                continue
            if topology_id in present or topology_id in deleted or path.name.endswith(".new") or _is_unused(path):
                path.unlink()
            else:
                unknown.add(topology_id)
        return unknown

    def _mend_boards(self, lives: Iterable[TopologyLife]) -> None:
        """Make the missing and damaged boards of topologies that were placed."""
        noted = _noted_incarnations(self._run_dir)
        for life in lives:
            path = self._run_dir.board(life.record.id, life.assignment.version)
            try:
                Board.attach(path).close()
            except ClusterError as error:
                log.warning("%s; it is made anew, the totals of %s begin at 0", error, life.record.id)
                died = (incarnation for _, incarnation in life.known_incarnations)
                _make_anew(self._run_dir, life.assignment, max((noted.get(life.record.id, 0), *died)))

    def _tidy_state(self, cast_off: Collection[Path], unknown: Collection[str]) -> None:
        for aside in sorted(self._run_dir.states.glob(f"*/{SET_ASIDE}*")):
            if aside in cast_off:
                _discard(aside)
            elif named_by(aside.name.removeprefix(SET_ASIDE)) not in unknown:
                log.warning("the state in %s is put back: no topology that began anew was stored", aside)
                _put_back(aside)

    @contextlib.contextmanager
    def view(self, record: TopologyRecord, assignment: Assignment) -> Iterator[TopologyView]:
        """Open a topology's board for a look. ClusterError if there is none."""
        with contextlib.closing(Board.attach(self._run_dir.board(record.id, assignment.version))) as board:
            yield TopologyView(board, assignment, record)

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


def _made(run_dir: RunDir, assignment: Assignment) -> Board:
    """A new board of an assignment, instead of one that is there."""
    n_tasks = max(executor.last_task for worker in assignment.executors for executor in worker)
    path = run_dir.board(assignment.topology_id, assignment.version)
    return Board.create(path, len(assignment.workers), n_tasks)


def _take_over(board: Board, former: Path) -> None:
    """Copy totals and incarnations from the former board; if it is damaged, they begin anew."""
    try:
        before = Board.attach(former)
    except ClusterError as error:
        log.error("%s; the totals begin at 0 with %s", error, board.path)
        return
    with contextlib.closing(before):
        board.continue_from(before)


def _put_back(aside: Path) -> None:
    if not aside.is_dir():
        return
    try:
        for path in aside.iterdir():
            path.rename(aside.parent / path.name)
        aside.rmdir()
    except OSError as error:
        log.error("the state in %s cannot be put back: %s", aside, error)


def _discard(aside: Path) -> None:
    if not aside.is_dir():
        return
    try:
        remove_tree(aside)
    except ClusterError as error:
        log.error("%s", error)


def _noted_incarnations(run_dir: RunDir) -> dict[str, int]:
    """Topology -> latest incarnation of a worker that a supervisor has noted."""
    found: dict[str, int] = {}
    for path in (run_dir.path / "n").glob("*.worker"):
        with contextlib.suppress(OSError, ClusterError):  # a note that cannot be read leads nobody to a worker
            boot = read_entry(path).boot
            found[boot.topology.id] = max(boot.incarnation, found.get(boot.topology.id, 0))
    return found


def _make_anew(run_dir: RunDir, assignment: Assignment, latest: int) -> None:
    """Make a board on which incarnations go on rising from `latest`."""
    try:
        board = _made(run_dir, assignment)
    except ClusterError as error:
        log.error("%s waits on: %s", assignment.topology_id, error)
        return
    for index in range(board.n_slots):
        board.set_slot(index, latest, STOPPED, 0)
    board.close()


def _is_unused(path: Path) -> bool:
    """Whether no worker ever started on a board."""
    try:
        board = Board.attach(path)
    except ClusterError as error:
        log.warning("%s", error)
        return False
    with contextlib.closing(board):
        return all(board.slot(index).incarnation == 0 for index in range(board.n_slots))
