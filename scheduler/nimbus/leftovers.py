"""Sorts the status boards that an earlier Nimbus has left: useless, lost, or of an unknown topology.

Guarantees
    * A board is removed only if its topology is known and has another one, if it is known to have been deleted, or if
      no worker ever started on it (its submission was never stored). Every other board is left alone.
    * A known topology whose board is missing or damaged gets a new one: its totals begin at 0, as the log says. Workers
      that run on the lost one end by themselves (`scheduler.worker.lease`), and are started again.

Relies on: being called by Nimbus before it serves requests, with the run directory's lock held.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from squall.engine.errors import ClusterError
from squall.ipc.board import STOPPED, Board
from squall.ipc.rundir import RunDir
from squall.scheduler.nimbus.topology_life import TopologyLife
from squall.scheduler.records.worker_ledger import read_entry

_BOARD = re.compile(r"(?P<id>.+-[0-9]+-[0-9a-f]{8})(\.[0-9]+)?")

log = logging.getLogger(__name__)


def tidy_boards(run_dir: RunDir, lives: Iterable[TopologyLife], deleted: Collection[str]) -> set[str]:
    """Remove useless boards; returns the ids of unknown topologies that have one."""
    present = {life.record.id: run_dir.board(life.record.id, life.version).name for life in lives}
    unknown = set()
    for path in sorted(run_dir.boards.iterdir()):
        match = _BOARD.fullmatch(path.name)
        topology_id = match["id"] if match else path.name
        if topology_id in present and path.name == present[topology_id]:
            continue
        if topology_id in present or topology_id in deleted or path.name.endswith(".new") or _is_unused(path):
            path.unlink()
        else:
            unknown.add(topology_id)
    return unknown


def mend_boards(run_dir: RunDir, lives: Iterable[TopologyLife]) -> None:
    """Make the missing and damaged boards of topologies that were placed."""
    noted = _noted_incarnations(run_dir)
    for life in lives:
        if life.assignment is None or life.needs_place:
            continue
        path = run_dir.board(life.record.id, life.version)
        try:
            Board.attach(str(path)).close()
        except ClusterError as error:
            log.warning("%s; it is made anew, the totals of %s begin at 0", error, life.record.id)
            died = (incarnation for _, incarnation in life.known_incarnations)
            _make_anew(path, life, max((noted.get(life.record.id, 0), *died)))


def _noted_incarnations(run_dir: RunDir) -> dict[str, int]:
    """Topology -> latest incarnation of a worker that a supervisor has noted."""
    found: dict[str, int] = {}
    for path in (run_dir.path / "n").glob("*.worker"):
        with contextlib.suppress(OSError, ClusterError):  # a note that cannot be read leads nobody to a worker
            boot = read_entry(path).boot
            found[boot.topology.id] = max(boot.incarnation, found.get(boot.topology.id, 0))
    return found


def _make_anew(path: Path, life: TopologyLife, latest: int) -> None:
    """Make a board on which incarnations go on rising from `latest`."""
    assignment = life.present_assignment
    n_tasks = max(executor.last_task for worker in assignment.executors for executor in worker)
    try:
        board = Board.create(str(path), len(assignment.workers), n_tasks)
    except ClusterError as error:
        log.error("%s waits on: %s", life.record.id, error)
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
    with contextlib.closing(board):
        return all(board.slot(index).incarnation == 0 for index in range(board.n_slots))
