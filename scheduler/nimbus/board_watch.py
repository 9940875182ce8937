"""Watches status boards and processes for Nimbus: which topologies are at rest, have finished or lost workers, which
slots are empty.

Guarantees: if a topology's board cannot be read, nothing is reported of it; the error is logged, and the limits of
`scheduler.nimbus.decisions` end the wait.

Relies on: `scheduler.nimbus.decisions` to name the topologies to watch, and to decide what follows. Thread: Nimbus's
loop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial

from squall.engine.errors import ClusterError
from squall.ipc.board import Board
from squall.ipc.rundir import RunDir
from squall.scheduler.common import process
from squall.scheduler.common.messages import Assignment, SlotRef
from squall.scheduler.nimbus.decisions import Instructions, Nimbus
from squall.scheduler.nimbus.nimbus_files import NimbusFiles
from squall.scheduler.nimbus.topology_life import TopologyLife
from squall.scheduler.records.topology_view import TopologyView
from squall.scheduler.records.worker_ledger import WorkerLedger

DRAIN_LOOK_SECS = 0.01
"""Between two looks at the boards of topologies that shall stop: short, as a look costs some 50 us."""
EMPTY_LOOK_SECS = 0.02
"""Between two searches for processes in slots that shall be empty and have no supervisor to report it: a search reads
a few files per slot."""
FINISH_LOOK_SECS = 0.5
"""Between two looks at the boards of topologies that leave when they have finished. Two looks in a row must show it, so
a program that follows the topology sees its end before the board goes."""
MISSING_LOOK_SECS = 1.0
"""Between two searches for slots whose nodes are gone: a node is gone only after seconds of silence."""
ORPHAN_LEASE_SECS = 60.0
"""Longest silence of a living worker without a supervisor before others get its work: a worker publishes nothing
during a long `execute`, or while the machine is overloaded."""

log = logging.getLogger(__name__)


class BoardWatch:
    """Looks whenever a look is due."""

    def __init__(self, nimbus: Nimbus, files: NimbusFiles, workers: LivingWorkers) -> None:
        self._nimbus = nimbus
        self._files = files
        self._workers = workers
        self._look_at = {"rest": 0.0, "finished": 0.0, "empty": 0.0, "lost": 0.0}
        self._seen_finished: set[str] = set()

    def next_deadline(self) -> float | None:
        """When the next look is due; None if there is nothing to watch."""
        watched = {
            "rest": self._nimbus.draining(), "finished": self._nimbus.finishing(), "empty": self._nimbus.is_emptying,
            "lost": self._nimbus.has_topologies,
        }
        return min((self._look_at[what] for what, there in watched.items() if there), default=None)

    def at_rest(self, now: float) -> list[str]:
        """Ids of the topologies that shall stop and are at rest."""
        # Random, so as not to fall in step with ticks that emit: after each, a worker is not quiet for a while.
        if not self._is_due("rest", now, DRAIN_LOOK_SECS * random.uniform(0.5, 1.0)):
            return []
        return [life.record.id for life in self._nimbus.draining() if self._looks(life, TopologyView.is_at_rest)]

    def look(self, now: float) -> Iterator[Instructions]:
        """What follows from all else that is seen, to be carried out one by one."""
        nimbus = self._nimbus
        if self._is_due("finished", now, FINISH_LOOK_SECS * random.uniform(0.5, 1.0)):
            before = self._seen_finished
            self._seen_finished = {
                life.record.id for life in nimbus.finishing() if self._looks(life, TopologyView.is_drained)
            }
            for topology_id in sorted(before & self._seen_finished):
                yield nimbus.finished(topology_id, now)
        if self._is_due("empty", now, EMPTY_LOOK_SECS):
            for life, slots in nimbus.unaccounted(now):
                yield nimbus.looked(life.record.id, slots, self._workers.among(life.assignment, slots), now)
        if self._is_due("lost", now, MISSING_LOOK_SECS):
            for life, slots in nimbus.missing(now):
                # The death of a supervisor alone moves nothing: its workers run on.
                if self._looks(life, partial(_has_dead, slots, now)):
                    yield nimbus.lost(life.record.id, now)

    def _is_due(self, what: str, now: float, pause_secs: float) -> bool:
        if now < self._look_at[what]:
            return False
        self._look_at[what] = now + pause_secs
        return True

    def _looks(self, life: TopologyLife, condition: Callable[[TopologyView], bool]) -> bool:
        try:
            with self._files.view(life.record, life.assignment) as view:
                return condition(view)
        except ClusterError as error:
            log.warning("%s", error)
            return False


def _has_dead(slots: list[SlotRef], now: float, view: TopologyView) -> bool:
    """Whether the worker of a slot has died, or has not published for long."""
    indices = map(view.assignment.workers.index, slots)
    cells = [(index, view.board.slot(index)) for index in indices]
    return not all(
        process.lives(cell.pid, cell.started_ticks) and view.is_heard_of(index, now, ORPHAN_LEASE_SECS)
        for index, cell in cells
    )


class LivingWorkers:
    """Finds the living workers of an assignment, and ends those that no supervisor can end.

    Guarantees: a worker is known by pid and start time together, so another process with its pid is neither taken for
    it nor signalled. A worker that has ended and was not reaped does not live.

    Relies on: supervisors noting each worker on the status board and in their ledger (`records.worker_ledger`); either
    will do. A worker whose supervisor was killed between the fork and the first note is in neither: it ends by itself
    when its board is removed (`scheduler.worker.self_watch`).
    """

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir

    def among(self, assignment: Assignment, slots: list[SlotRef]) -> list[SlotRef]:
        """The slots among these whose worker of this assignment lives."""
        return [
            slot for slot in slots
            if any(process.lives(pid, started) for pid, started in self._known(assignment, slot))
        ]

    def end(self, assignment: Assignment, slot: SlotRef) -> None:
        """Send SIGKILL to the worker of a slot and its process group. ClusterError if it cannot be signalled."""
        for pid, started in self._known(assignment, slot):
            with contextlib.suppress(ClusterError):  # it has ended by now
                pidfd = process.open_proven(pid, started)
                try:
                    process.send_signal_to_group(pid, signal.SIGKILL)
                    process.send_signal(pidfd, signal.SIGKILL)
                finally:
                    os.close(pidfd)

    def _known(self, assignment: Assignment, slot: SlotRef) -> Iterator[tuple[int, int]]:
        """Pid and start time of the slot's worker, from the board and from its supervisor's ledger."""
        with contextlib.suppress(ClusterError):  # without a board there is still the ledger
            path = self._run_dir.board(assignment.topology_id, assignment.version)
            with contextlib.closing(Board.attach(path)) as board:
                cell = board.slot(assignment.workers.index(slot))
            if cell.pid:
                yield cell.pid, cell.started_ticks
        entry = WorkerLedger(self._run_dir, slot.node).entry(slot.port)
        if entry is not None and entry.boot.assignment == assignment:
            yield entry.pid, entry.start_time_ticks
