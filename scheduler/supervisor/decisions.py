"""A node's decisions: hands each message, death and deadline to the state machine of its slot; which topologies have
spares.

Guarantees
    * The slots are driven to the state that Nimbus wants, however often and in whatever order it says so.
    * A worker of a topology is not forked in one slot while another slot of this node still holds it.
    * A message from a worker that is not its slot's present incarnation changes nothing; that worker is told to stop.
    * A spare is made only when all workers of its topology here have been ready for a while: its imports do not take
      the processor from workers that start, and a run of a second has none. A topology that has no work here any more
      has no spare. One that cannot be made, or dies, is made again ever more rarely, until one is of use, and that is
      told once.

Relies on: its caller to carry out the orders in sequence. Pure, like the slots.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import NamedTuple

from squall.engine.foreign.text import plain
from squall.scheduler.common.messages import (
    SlotAssignment,
    SlotChanged,
    TopologyRecord,
    WorkerBoot,
    WorkerFailed,
    WorkerReady,
)
from squall.scheduler.supervisor.instruction import Instruction, SendStop
from squall.scheduler.supervisor.slot import Slot
from squall.scheduler.supervisor.worker_life import NOTHING_LEFT, SlotState, WorkerRemains

REST_SECS = 1.0
"""Time from the moment when a topology's workers are ready until it gets a spare."""
_DELAY_FACTOR, _MAX_DELAY_SECS = 4.0, 3600.0

_EVENT_OF_STATE = {SlotState.STARTING: "started", SlotState.RUNNING: "ready", SlotState.FAILED: "failed"}

log = logging.getLogger(__name__)


class Order(NamedTuple):
    """An instruction and the slot (port) it is about."""

    port: int
    instruction: Instruction


class Supervisor:
    """All slots of one node. Thread: the supervisor's loop."""

    def __init__(self, slots: list[Slot]) -> None:
        self.slots = {slot.address.port: slot for slot in slots}
        self._desired: dict[int, SlotAssignment] = {}
        self._leaving = False

    # ---- Nimbus ----

    def assign(self, desired: dict[int, SlotAssignment], now: float, keep: Collection[int] = ()) -> list[Order]:
        """Take the complete desired state. The caller has refused ports that are not this node's.

        The slots of the ports in `keep` keep their work.
        """
        if self._leaving:
            return []
        kept = {port: self._desired[port] for port in keep if port in self._desired}
        self._desired = {**desired, **kept}
        return self._drive(now)

    def shut_down(self, grace_secs: float, now: float) -> list[Order]:
        """Empty every slot for good. May be called again, with less grace."""
        self._leaving = True
        self._desired = {}
        return [Order(port, step) for port, slot in self.slots.items() for step in slot.stop(grace_secs, now)]

    def holds(self) -> dict[int, str]:
        """Port -> id of the topology that its slot works for."""
        return {port: slot.work.topology.id for port, slot in self.slots.items() if slot.work is not None}

    @property
    def is_empty(self) -> bool:
        return all(slot.state is SlotState.EMPTY for slot in self.slots.values())

    @property
    def is_idle(self) -> bool:
        """Whether the slots are empty, and none is to get work."""
        return not self._desired and self.is_empty

    def assignments(self) -> set[tuple[str, int]]:
        """Topology id and version of the assignments that slots work for or soon will."""
        works = [*self._desired.values(), *(slot.work for slot in self.slots.values())]
        return {(work.topology.id, work.assignment.version) for work in works if work is not None}

    def standing(self, now: float) -> list[SlotChanged]:
        """Reports of the state of every occupied slot, for a Nimbus that may have missed some."""
        return [changed for slot in self.slots.values() if (changed := _standing(slot, now)) is not None]

    def adopt(self, boot: WorkerBoot, pid: int, is_ready: bool, now: float) -> list[Order]:
        """Take over a living worker of an earlier supervisor. Until Nimbus says otherwise, its work is desired."""
        slot = self.slots[boot.port]
        steps = slot.adopt(boot, pid, is_ready, now)
        if slot.target is not None:
            self._desired = {**self._desired, boot.port: slot.target}
        return self._after(boot.port, steps, now)

    # ---- the forking parent ----

    def forked(self, port: int, incarnation: int, pid: int, now: float) -> list[Order] | None:
        """A fork request was answered. None if no slot waits for that worker any more: it must be killed."""
        slot = self._waiting_for_fork(port, incarnation)
        return None if slot is None else self._after(port, slot.forked(pid, now), now)

    def fork_refused(self, port: int, incarnation: int, reason: str, now: float) -> list[Order]:
        slot = self._waiting_for_fork(port, incarnation)
        return [] if slot is None else self._after(port, slot.fork_failed(reason, now), now)

    def forking_parent_ended(self, reason: str, now: float) -> list[Order]:
        """The forking parent has ended: it will not answer the requests that are left."""
        waiting = [
            (port, slot)
            for port, slot in self.slots.items()
            if self._waiting_for_fork(port, slot.life.incarnation) is not None
        ]
        # Collect all before acting on one: that may already send new requests, to the successor.
        orders = []
        for port, slot in waiting:
            orders += self._after(port, slot.fork_failed(reason, now), now)
        return orders

    # ---- workers ----

    def port_of(self, pid: int) -> int | None:
        """Port of the slot whose present worker, alive or not explained yet, has this pid."""
        for port, slot in self.slots.items():
            if slot.life.pid == pid and slot.has_process:
                return port
        return None

    def lost(self, port: int, now: float) -> list[Order]:
        """The worker's process has ended, as its pidfd tells."""
        return self._after(port, self.slots[port].lost(now), now)

    def stuck(self, port: int, secs: float, now: float, code: str = "", is_stopped: bool = False) -> list[Order]:
        """The worker's loop has not turned for so long; `code`: the component and task whose code it is in."""
        return self._after(port, self.slots[port].stuck(secs, now, code, is_stopped), now)

    def exited(self, pid: int, status: int, now: float, remains: WorkerRemains = NOTHING_LEFT) -> list[Order]:
        """The exit status of a worker, and its remains. It may arrive before the pidfd tells."""
        port = self.port_of(pid)
        if port is None:
            return []
        slot = self.slots[port]
        steps = [] if slot.state is SlotState.EXITED else slot.lost(now)
        if slot.life.exit_status is None:
            steps += slot.exited(status, now, remains)
        return self._after(port, steps, now)

    def heard(self, message: WorkerReady | WorkerFailed, now: float) -> list[Order]:
        """A worker says that it can take tuples, or why it is about to exit."""
        slot = self._present(message.port, message.incarnation)
        if slot is None:
            return [Order(message.port, SendStop(message.incarnation))]
        if isinstance(message, WorkerReady):
            return self._after(message.port, slot.ready(now), now)
        return self._after(message.port, slot.worker_failed(f"{message.error}\n{message.traceback}", now), now)

    # ---- time ----

    def tick(self, port: int, now: float) -> list[Order]:
        return self._after(port, self.slots[port].tick(now), now)

    def review(self) -> list[Order]:
        """Take back verdicts that do not hold any more. Called once per sweep."""
        return [Order(port, step) for port, slot in self.slots.items() for step in slot.review()]

    # ---- parts ----

    def _after(self, port: int, steps: list[Instruction], now: float) -> list[Order]:
        """The orders of an event that may have emptied a slot for which another one waits."""
        return [Order(port, step) for step in steps] + self._drive(now)

    def _drive(self, now: float) -> list[Order]:
        orders = []
        moved = True
        while moved:
            # Again, because another slot may have waited for this one to give up its work.
            moved = False
            for port, slot in self.slots.items():
                wanted = self._wanted(port)
                if wanted is not slot.target:
                    moved = True
                    orders += [Order(port, step) for step in slot.assign(wanted, now)]
        return orders

    def _wanted(self, port: int) -> SlotAssignment | None:
        """The desired work of a slot; None while another slot still holds it."""
        wanted = self._desired.get(port)
        if wanted is None:
            return None
        for other, slot in self.slots.items():
            held = slot.work if other != port else None
            if held is not None and _identity(held) == _identity(wanted):
                return None
        return wanted

    def _waiting_for_fork(self, port: int, incarnation: int) -> Slot | None:
        slot = self._present(port, incarnation)
        if slot is None or slot.state is not SlotState.STARTING or slot.life.pid != 0:
            return None
        return slot

    def _present(self, port: int, incarnation: int) -> Slot | None:
        slot = self.slots.get(port)
        return slot if slot is not None and slot.life.incarnation == incarnation and incarnation > 0 else None


class Spares:
    """Decides which topologies of a node, by their ids, have a warm spare: a process that has loaded the code, opens
    nothing, and becomes the worker when one dies.

    Relies on `look` being called about once a second. Thread: the supervisor's loop."""

    def __init__(self) -> None:
        self._kept: set[str] = set()
        """Topologies that have a spare, or will soon."""
        self._ready_since: dict[str, float] = {}
        """Since when all workers of a topology have been ready."""
        self._failures: dict[str, tuple[int, float]] = {}
        """How many spares in a row were of no use, and when the next one may be made."""

    def look(self, slots: Collection[Slot], now: float) -> list[TopologyRecord] | None:
        """All topologies that are to have a spare from now on; None: the same as before."""
        works = [(slot, slot.target.topology) for slot in slots if slot.target is not None]
        held = {record.id: record for _, record in works}
        restless = {
            record.id for slot, record in works
            if slot.state is not SlotState.RUNNING or not record.conf.get("warm_spare")
        }
        self._ready_since = {each: self._ready_since.get(each, now) for each in held.keys() - restless}
        self._failures = {each: failed for each, failed in self._failures.items() if each in held}
        due = {
            each for each, since in self._ready_since.items()
            if now >= max(since + REST_SECS, self._failures.get(each, (0, now))[1])
        }
        kept, self._kept = self._kept, (self._kept & held.keys()) | due
        return None if kept == self._kept else [held[each] for each in sorted(self._kept)]

    def ended(self, topology_id: str, reason: str, now: float) -> None:
        """A spare is no more. No reason: it became a worker, or made room for one."""
        self._kept.discard(topology_id)
        self._ready_since.pop(topology_id, None)
        if not reason:
            self._failures.pop(topology_id, None)
            return
        count = self._failures.get(topology_id, (0, now))[0] + 1
        self._failures[topology_id] = count, now + min(_MAX_DELAY_SECS, _DELAY_FACTOR**count)
        if count == 1:
            log.warning("%s has no spare, so a replacement loads its code first: %s", plain(topology_id), plain(reason))

    def all_ended(self) -> None:
        """The forking parent has ended, and its spares with it."""
        self._kept.clear()
        self._ready_since.clear()


def _standing(slot: Slot, now: float) -> SlotChanged | None:
    """None if the slot's next event will bring a report anyway."""
    event = _EVENT_OF_STATE.get(slot.state)
    if event is None or slot.work is None or (slot.life.pid == 0 and event != "failed"):
        return None
    reason = slot.life.ending() if event == "failed" and slot.life.pid else ""
    return slot.address.changed(slot.work, slot.life, event, now, reason, slot.life.error)


def _identity(work: SlotAssignment) -> tuple[str, int]:
    return work.topology.id, work.slot_index
