"""Sorts the files that an earlier Nimbus has left in the run directory: useless, damaged, or unknown.

Guarantees
    * A missing store is refused if the directory shows traces of topologies: it is damage, not a beginning.
    * A board is removed only if its topology is known and has another one, if it is known to have been deleted, or if
      no worker ever started on it (its submission was never stored). Every other board is left alone.
    * A known topology whose board is missing gets a new one, as does one whose board is damaged if none of its workers
      lives: its totals begin at 0, as the log says.

Relies on: being called by Nimbus before it serves requests, with the run directory's lock held.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from squall.engine.errors import ClusterError
from squall.ipc.board import STOPPED, Board, BoardMissing
from squall.ipc.rundir import RunDir
from squall.scheduler.common import process
from squall.scheduler.common.messages import Assignment, TopologyRecord
from squall.scheduler.nimbus.store import STORE_COPY, StoreError
from squall.scheduler.nimbus.topology_life import TopologyLife
from squall.scheduler.records.worker_ledger import decode_entry

_BOARD = re.compile(r"(?P<id>.+-[0-9]+-[0-9a-f]{8})(\.[0-9]+)?")

log = logging.getLogger(__name__)


def check_store_is_there(run_dir: RunDir) -> bool:
    """Whether there is a store, or its copy. StoreError if not and the directory is not new. Call it before the store
    is opened."""
    if run_dir.nimbus_db.exists() or (run_dir.durable / STORE_COPY).exists():
        return True
    for directory, pattern in ((run_dir.boards, "*"), (run_dir.code, "[0-9a-f]*"), (run_dir.path / "n", "*.worker")):
        trace = next(iter(sorted(directory.glob(pattern))), None)
        if trace is not None:
            raise StoreError(
                f"store {run_dir.nimbus_db} is missing, though there is {trace}: put back a copy of it, or run "
                f"`squall repair --dir {run_dir.path} --empty`; nothing was stopped or removed"
            )
    return False


def tidy_boards(run_dir: RunDir, lives: Iterable[TopologyLife], deleted: Collection[str]) -> set[str]:
    """Remove useless boards; returns the ids of unknown topologies that have a board or a worker."""
    present = {life.record.id: run_dir.board(life.record.id, life.version).name for life in lives}
    unknown = {topology_id for topology_id in living(run_dir) if topology_id not in present}
    for path in sorted(run_dir.boards.iterdir()):
        match = _BOARD.fullmatch(path.name)
        topology_id = match["id"] if match else path.name
        if path.name.endswith(".new") or (topology_id in present and path.name != present[topology_id]):
            path.unlink()
        elif topology_id in present:
            continue
        elif topology_id in deleted or _is_unused(path):
            path.unlink()
        else:
            unknown.add(topology_id)
    return unknown - set(deleted)


def mend_boards(run_dir: RunDir, lives: Iterable[TopologyLife]) -> None:
    """Make the missing boards of topologies that were placed."""
    alive = living(run_dir)
    for life in lives:
        if life.assignment is None or life.needs_place:
            continue
        path = run_dir.board(life.record.id, life.version)
        try:
            Board.attach(str(path)).close()
        except ClusterError as error:
            # Without a board, workers end by themselves (`scheduler.worker.lease`); with a damaged one they run on.
            if life.record.id in alive and not isinstance(error, BoardMissing):
                log.error("%s: its workers run on, but cannot be watched: rebalance or kill it", error)
                continue
            died = (incarnation for _, incarnation in life.known_incarnations)
            latest = max((alive.get(life.record.id, 0), *died))
            log.warning("%s; it is made anew, the totals of %s begin at 0", error, life.record.id)
            _make_anew(path, life.record, life.assignment, latest)


def living(run_dir: RunDir) -> dict[str, int]:
    """Topologies with living workers in the supervisors' ledgers: id -> latest incarnation."""
    found: dict[str, int] = {}
    for path in (run_dir.path / "n").glob("*.worker"):
        try:
            entry = decode_entry(path.read_bytes())
            if process.lives(entry.pid, entry.start_time_ticks):
                boot = entry.boot
                found[boot.topology.id] = max(boot.incarnation, found.get(boot.topology.id, 0))
        except (OSError, ClusterError) as error:
            log.warning("the note %s of a worker cannot be read: %s", path, error)
    return found


def _make_anew(path: Path, record: TopologyRecord, assignment: Assignment, latest: int) -> None:
    """Make a board on which incarnations go on rising from `latest`."""
    n_tasks = max(executor.last_task for worker in assignment.executors for executor in worker)
    try:
        board = Board.create(str(path), len(assignment.workers), n_tasks)
    except ClusterError as error:
        log.error("%s waits on: %s", record.id, error)
        return
    for index in range(board.n_slots):
        board.set_slot(index, latest, STOPPED, 0)
    board.close()


def _is_unused(path: Path) -> bool:
    """Whether no worker ever started on a board."""
    try:
        board = Board.attach(os.fspath(path))
    except ClusterError as error:
        log.warning("%s", error)
        return False
    try:
        return all(board.slot(index).incarnation == 0 for index in range(board.n_slots))
    finally:
        board.close()
