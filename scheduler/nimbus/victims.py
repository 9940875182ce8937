"""Finds the processes of a cluster that a fault shall hit, and makes the view in which its targets are looked up.

Guarantees: a worker is the process that the status board names for the slot, a daemon one that carries the mark of the
run directory; each with the start time that proves it. A process that is not there now is an error that says why.

Thread: Nimbus's loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

import psutil

from squall.engine.api.stream import ACKER_COMPONENT
from squall.engine.errors import ClusterError
from squall.ipc.board import DEAD, STOPPED, SlotCell
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import Assignment, TopologyRecord
from squall.scheduler.common.process import lives, start_time_ticks
from squall.scheduler.common.role import Role, RoleKind, processes_of, role_of
from squall.scheduler.faults.in_force import NIMBUS, Victim
from squall.scheduler.faults.resolution import Place, View
from squall.scheduler.faults.target import Sort
from squall.scheduler.nimbus.nimbus_files import NimbusFiles

Topologies = Iterable[tuple[TopologyRecord, Assignment | None]]


class Victims:
    """Finds victims in one run directory."""

    def __init__(self, run_dir: RunDir, files: NimbusFiles, topologies: Callable[[], Topologies]) -> None:
        self._run_dir = run_dir
        self._files = files
        self._topologies = topologies

    def worker(self, name: str) -> Victim:
        """The worker that lives in a slot now. ClusterError if none does."""
        for record, assignment in self._topologies():
            for index, slot in enumerate(assignment.workers if assignment is not None else ()):
                if assignment is not None and str(slot) == name:
                    with self._files.view(record, assignment) as view:
                        return living(name, view.board.slot(index))
        raise _not_there(f"worker {name}")

    def daemon(self, sort: Sort, node: str) -> Victim:
        """Nimbus, or the supervisor or forking parent of a node. ClusterError if there is none now."""
        if sort is Sort.NIMBUS:
            return _victim(NIMBUS, os.getpid())
        supervisor = self._of_role(Role(RoleKind.SUPERVISOR, node))
        if sort is Sort.SUPERVISOR:
            return supervisor
        # A worker that was forked just now looks like its forking parent, and is a child of that.
        return self._of_role(Role(RoleKind.FORKING_PARENT, node), parent=supervisor.pid)

    def _of_role(self, role: Role, parent: int | None = None) -> Victim:
        name = f"{role.kind} {role.name}"
        for process in processes_of(self._run_dir):
            if role_of(process) == role and parent in (None, _parent(process)):
                return _victim(name, process.pid)
        raise _not_there(f"the {name}")


def living(worker: str, cell: SlotCell) -> Victim:
    """The worker of a slot, as its status board names it. ClusterError if none lives there now."""
    if cell.state in (DEAD, STOPPED) or not cell.pid or not lives(cell.pid, cell.started_ticks):
        raise _not_there(f"worker {worker}")
    return Victim(worker, cell.pid, cell.started_ticks, cell.incarnation)


def _not_there(what: str) -> ClusterError:
    return ClusterError(f"{what} is not there now: not started yet, dead and not replaced yet, or stopped")


def _victim(name: str, pid: int) -> Victim:
    return Victim(name, pid, start_time_ticks(pid))


def _parent(process: psutil.Process) -> int:
    """Pid of the parent; 0 if the process has ended."""
    try:
        return process.ppid()
    except psutil.Error:
        return 0


def view_of(nodes: Sequence[str], assigned: Topologies) -> View:
    """`assigned`: topologies and their assignments; None: not placed yet."""
    workers: dict[str, None] = {}
    topologies: dict[str, dict[str, tuple[Place, ...]]] = {}
    for record, assignment in assigned:
        if assignment is not None:
            workers.update(dict.fromkeys(map(str, assignment.workers)))
        topologies[record.name] = {
            component.id: _placed(record.name, component.id, assignment) if assignment is not None
            else tuple(Place(record.name, component.id, -index) for index in range(component.tasks))
            for component in record.components
            if component.id != ACKER_COMPONENT
        }
    return View(tuple(nodes), tuple(workers), topologies)


def _placed(topology: str, component: str, assignment: Assignment) -> tuple[Place, ...]:
    found = [
        Place(topology, component, task, str(slot))
        for slot, executors in zip(assignment.workers, assignment.executors, strict=True)
        for executor in executors
        if executor.component == component
        for task in range(executor.first_task, executor.last_task + 1)
    ]
    return tuple(sorted(found, key=lambda place: place.task))
