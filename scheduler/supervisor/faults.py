"""What a supervisor breaks on purpose: its workers stand still or run slowly, forks are refused, the store is locked,
strangers talk to its workers and to Nimbus.

Guarantees: see `scheduler.breaking.process_faults`. A file of the faults in force that cannot be read changes nothing:
what was begun ends by the clock.

Relies on: Nimbus to say when the file has changed. Owner: the supervisor's loop.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from squall.engine.errors import ClusterError
from squall.ipc.door import CONTROL_PLANE, DATA_PLANE, password_of
from squall.ipc.frame import opening_of
from squall.ipc.rundir import RunDir
from squall.scheduler.breaking.faults_file import read_faults
from squall.scheduler.breaking.process_faults import ProcessFaults
from squall.scheduler.breaking.store_lock import RETRY_SECS, StoreLock
from squall.scheduler.breaking.strangers import Address, Strangers
from squall.scheduler.faults.in_force import NIMBUS, FaultInForce
from squall.scheduler.supervisor.slot import Slot

FORK_REFUSED, STORE_LOCKED = "fork-refused", "store-locked"

log = logging.getLogger(__name__)


class NodeFaults:
    """Those of one node."""

    def __init__(self, run_dir: RunDir, node: str, slots: Iterable[Slot]) -> None:
        self._run_dir = run_dir
        self._slots = {f"{node}:{slot.address.port}": slot for slot in slots}
        self._strangers = Strangers(node, self._address_of)
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
        self._strangers.take(faults, now)
        self._lock_store(now)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._processes.tick(now)
        self._strangers.tick(now)
        self._lock_store(now)

    def next_deadline(self, now: float) -> float | None:
        locks = [fault.ends_secs for fault in self._in_force(STORE_LOCKED, now)]
        if locks and not self._lock.is_held:
            locks.append(now + RETRY_SECS)
        others = (self._processes.next_deadline(now), self._strangers.next_deadline())
        return min([*locks, *(at for at in others if at is not None)], default=None)

    def fork_refusal(self, now: float) -> str:
        """Why no worker may be forked now; "" if one may."""
        refusing = self._in_force(FORK_REFUSED, now)
        return f"fault {refusing[0].id} refuses forks" if refusing else ""

    def end(self, now: float) -> None:
        """The supervisor leaves."""
        self._mine = []
        self._lock.release()
        self._strangers.end()
        self._processes.end(now)

    def _address_of(self, name: str) -> Address | None:
        """The socket of Nimbus, or of the worker that lives in a slot of this node."""
        run_dir, slot = self._run_dir, self._slots.get(name)
        if name == NIMBUS:
            return Address(run_dir.nimbus_socket, password_of(run_dir.key(), CONTROL_PLANE), False)
        if slot is None or slot.work is None or not slot.has_process:
            return None
        topology, version = slot.work.topology.id, slot.work.assignment.version
        path = run_dir.worker_socket(
            topology, version, slot.address.node, slot.address.port, slot.life.incarnation
        )
        return Address(path, password_of(opening_of(run_dir.key(), topology, version), DATA_PLANE), True)

    def _in_force(self, kind: str, now: float) -> list[FaultInForce]:
        return [fault for fault in self._mine if fault.kind == kind and fault.is_in_force(now)]

    def _lock_store(self, now: float) -> None:
        if self._in_force(STORE_LOCKED, now):
            self._lock.hold()
        else:
            self._lock.release()
