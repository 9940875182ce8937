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
from squall.engine.errors import ClusterError, UsageError
from squall.ipc.board import DEAD, STOPPED, SlotCell
from squall.ipc.rundir import RunDir
from squall.scheduler.common.mark import processes_of, role_of
from squall.scheduler.common.messages import Assignment, TopologyRecord
from squall.scheduler.common.process import lives, start_time_ticks
from squall.scheduler.common.process_title import Kind, Role
from squall.scheduler.faults.in_force import NIMBUS, Victim
from squall.scheduler.faults.resolution import Place, View
from squall.scheduler.nimbus.files import NimbusFiles

Topologies = Iterable[tuple[TopologyRecord, Assignment | None]]


class Victims:
    """Finds victims in one run directory."""

    def __init__(self, run_dir: RunDir, files: NimbusFiles, topologies: Callable[[], Topologies]) -> None:
        self._run_dir = run_dir
        self._files = files
        self._topologies = topologies

    def worker(self, name: str) -> Victim:
        """The worker that lives in a slot now; ClusterError if none does, UsageError if no topology has the slot."""
        known, unplaced = [], []
        for record, assignment in self._topologies():
            if assignment is None:
                unplaced.append(record.name)
                continue
            for index, slot in enumerate(assignment.workers):
                known.append(str(slot))
                if str(slot) == name:
                    with self._files.view(record, assignment) as view:
                        return living(name, view.board.slot(index))
        if unplaced:
            raise ClusterError(
                f"there is no worker {name!r} yet: topology {', '.join(unplaced)} has not been placed "
                f"(job.wait_until_ready waits for it)"
            )
        raise UsageError(f"there is no worker {name!r:.80}; workers are {', '.join(known) or 'none'}")

    def nimbus(self) -> Victim:
        return _victim(NIMBUS, os.getpid())

    def has_keeper(self) -> bool:
        """Whether this cluster has a keeper, which starts daemons again."""
        return self._run_dir.keeper_lock.exists()

    def supervisor(self, node: str) -> Victim:
        """A node's supervisor. ClusterError if there is none now."""
        for process in processes_of(self._run_dir):
            if role_of(process) == Role(Kind.SUPERVISOR, node):
                return _victim(f"{Kind.SUPERVISOR} {node}", process.pid)
        raise ClusterError(f"the supervisor of {node} is dead, its replacement is not there yet")

    def forking_parent(self, node: str) -> Victim:
        """A node's forking parent. ClusterError if there is none now."""
        supervisor = self.supervisor(node)
        for process in processes_of(self._run_dir):
            # A worker that was forked just now looks like its forking parent, and is a child of that.
            if role_of(process) == Role(Kind.FORKING_PARENT, node) and _parent(process) == supervisor.pid:
                return _victim(f"{Kind.FORKING_PARENT} {node}", process.pid)
        raise ClusterError(f"the forking parent of {node} is dead, its replacement is not there yet")


def living(worker: str, cell: SlotCell) -> Victim:
    """The worker of a slot, as its status board names it. ClusterError if none lives there now."""
    if cell.state == STOPPED and cell.pid:
        raise ClusterError(f"worker {worker} has been stopped")
    if cell.state != DEAD and not cell.pid:
        raise ClusterError(f"worker {worker} has not been started yet (job.wait_until_ready waits for it)")
    if cell.state == DEAD or not lives(cell.pid, cell.started_ticks):
        raise ClusterError(f"worker {worker} is dead, its replacement is not there yet")
    return Victim(worker, cell.pid, cell.started_ticks, cell.incarnation)


def _victim(name: str, pid: int) -> Victim:
    return Victim(name, pid, start_time_ticks(pid))


def _parent(process: psutil.Process) -> int:
    """Pid of the parent; 0 if the process has ended."""
    try:
        return process.ppid()
    except psutil.Error:
        return 0


def view_of(
    nodes: Sequence[str], assigned: Topologies, *, has_keeper: bool
) -> View:
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
    return View(tuple(nodes), tuple(workers), topologies, has_keeper)


def _placed(topology: str, component: str, assignment: Assignment) -> tuple[Place, ...]:
    found = [
        Place(topology, component, task, str(slot))
        for slot, executors in zip(assignment.workers, assignment.executors, strict=True)
        for executor in executors
        if executor.component == component
        for task in range(executor.first_task, executor.last_task + 1)
    ]
    return tuple(sorted(found, key=lambda place: place.task))
