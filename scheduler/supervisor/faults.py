"""What a supervisor breaks on purpose: its workers stand still or run slowly, forks are refused, the store is locked.

Guarantees: see `scheduler.breaking.process_faults`. A file of the faults in force that cannot be read changes nothing:
what was begun ends by the clock.

Relies on: Nimbus to say when the file has changed. Owner: the supervisor's loop.
"""

from __future__ import annotations

import logging

from squall.engine.errors import ClusterError
from squall.ipc.rundir import RunDir
from squall.scheduler.breaking.faults_file import read_faults
from squall.scheduler.breaking.process_faults import ProcessFaults
from squall.scheduler.breaking.store_lock import RETRY_SECS, StoreLock
from squall.scheduler.faults.in_force import FaultInForce

FORK_REFUSED, STORE_LOCKED = "fork-refused", "store-locked"

log = logging.getLogger(__name__)


class NodeFaults:
    """Those of one node."""

    def __init__(self, run_dir: RunDir, node: str) -> None:
        self._run_dir = run_dir
        self._node = node
        self._processes = ProcessFaults(node)
        self._lock = StoreLock(run_dir.nimbus_db)
        self._mine: list[FaultInForce] = []

    def look(self, now: float) -> None:
        """The file was written, or nobody has looked at it yet."""
        try:
            faults = read_faults(self._run_dir)
        except ClusterError as error:
            log.error("%s", error)
            return
        self._mine = [fault for fault in faults if fault.carrier == self._node]
        self._processes.take(faults, now)
        self._lock_store(now)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._processes.tick(now)
        self._lock_store(now)

    def next_deadline(self, now: float) -> float | None:
        locks = [fault.ends_secs for fault in self._in_force(STORE_LOCKED, now)]
        if locks and not self._lock.is_held:
            locks.append(now + RETRY_SECS)
        of_processes = self._processes.next_deadline(now)
        return min([*locks, *([] if of_processes is None else [of_processes])], default=None)

    def fork_refusal(self, now: float) -> str:
        """Why no worker may be forked now; "" if one may."""
        refusing = self._in_force(FORK_REFUSED, now)
        return f"fault {refusing[0].id} refuses forks" if refusing else ""

    def end(self, now: float) -> None:
        """The supervisor leaves."""
        self._mine = []
        self._lock.release()
        self._processes.end(now)

    def _in_force(self, kind: str, now: float) -> list[FaultInForce]:
        return [fault for fault in self._mine if fault.kind == kind and fault.is_in_force(now)]

    def _lock_store(self, now: float) -> None:
        if self._in_force(STORE_LOCKED, now):
            self._lock.hold()
        else:
            self._lock.release()
