"""Watches status boards and processes for Nimbus: which topologies are at rest, have finished or lost workers, which
slots are empty.

Guarantees: if a topology's board cannot be read, nothing is reported of it; the error is logged, and the limits of
`scheduler.nimbus.decisions` end the wait.

Relies on: `scheduler.nimbus.decisions` to name the topologies to watch, and to decide what follows. Thread: Nimbus's
loop.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from squall.engine.errors import ClusterError
from squall.scheduler.common.messages import Assignment, SlotRef, TopologyRecord
from squall.scheduler.common.process import lives
from squall.scheduler.nimbus.decisions import Nimbus
from squall.scheduler.nimbus.files import NimbusFiles
from squall.scheduler.nimbus.living_workers import LivingWorkers
from squall.scheduler.records.topology_view import TopologyView

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
        self._empty_look_at = 0.0
        self._drain_look_at = 0.0
        self._missing_look_at = 0.0
        self._finish_look_at = 0.0
        self._seen_finished: set[str] = set()

    def next_deadline(self) -> float | None:
        """When the next look is due; None if there is nothing to watch."""
        deadlines = [self._drain_look_at] if self._nimbus.draining() else []
        if self._nimbus.finishing():
            deadlines.append(self._finish_look_at)
        if self._nimbus.is_emptying:
            deadlines.append(self._empty_look_at)
        if self._nimbus.has_topologies:
            deadlines.append(self._missing_look_at)
        return min(deadlines, default=None)

    def at_rest(self, now: float) -> list[str] | None:
        """Ids of the topologies that shall stop and are at rest; None if no look is due."""
        if now < self._drain_look_at:
            return None
        # Random, so as not to fall in step with bolts' ticks: during each, a worker is not quiet for a moment.
        self._drain_look_at = now + DRAIN_LOOK_SECS * random.uniform(0.5, 1.0)
        return [
            record.id for record, assignment in self._nimbus.draining()
            if self._looks(record, assignment, TopologyView.is_at_rest)
        ]

    def finished(self, now: float) -> list[str]:
        """Ids of the topologies that shall leave when they have finished, and have."""
        if now < self._finish_look_at:
            return []
        self._finish_look_at = now + FINISH_LOOK_SECS * random.uniform(0.5, 1.0)
        before = self._seen_finished
        self._seen_finished = {
            record.id for record, assignment in self._nimbus.finishing()
            if self._looks(record, assignment, TopologyView.is_drained)
        }
        return sorted(before & self._seen_finished)

    def emptied(self, now: float) -> list[tuple[str, list[SlotRef], list[SlotRef]]]:
        """(topology id, slots that shall be empty but are not reported so, those of them that are not empty)."""
        if now < self._empty_look_at:
            return []
        self._empty_look_at = now + EMPTY_LOOK_SECS
        return [
            (record.id, [assignment.workers[index] for index in slots], self._workers.among(assignment, slots))
            for record, assignment, slots in self._nimbus.unaccounted(now)
        ]

    def lost(self, now: float) -> list[str]:
        """Ids of the topologies that have lost workers with their nodes."""
        if now < self._missing_look_at:
            return []
        self._missing_look_at = now + MISSING_LOOK_SECS
        return [
            record.id
            for record, assignment, slots in self._nimbus.missing(now)
            if self._has_dead(record, assignment, slots, now)
        ]

    def _looks(
        self, record: TopologyRecord, assignment: Assignment, condition: Callable[[TopologyView], bool]
    ) -> bool:
        try:
            with self._files.view(record, assignment) as view:
                return condition(view)
        except ClusterError as error:
            log.warning("%s", error)
            return False

    def _has_dead(self, record: TopologyRecord, assignment: Assignment, slots: list[int], now: float) -> bool:
        """Whether a worker is dead. The death of a supervisor alone moves nothing: its workers run on."""
        try:
            with self._files.view(record, assignment) as view:
                return not all(_lives(view, slot, now) for slot in slots)
        except ClusterError as error:
            log.warning("%s", error)
            return False


def _lives(view: TopologyView, slot: int, now: float) -> bool:
    """Whether the worker of a slot lives and has published lately."""
    cell = view.board.slot(slot)
    return lives(cell.pid, cell.started_ticks) and view.is_heard_of(slot, now, ORPHAN_LEASE_SECS)
