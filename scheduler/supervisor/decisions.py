"""A node's decisions: hands each message, death and deadline to the state machine of its slot.

Guarantees
    * The slots are driven to the state that Nimbus wants, however often and in whatever order it says so.
    * A worker of a topology is not forked in one slot while another slot of this node still holds it.
    * A message from a worker that is not its slot's present incarnation changes nothing; that worker is told to stop.

Relies on: its caller to carry out the orders in sequence. Pure, like the slots.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from squall.scheduler.common.messages import SlotAssignment, SlotChanged, WorkerBoot, WorkerFailed, WorkerReady
from squall.scheduler.supervisor.instruction import Instruction, SendStop
from squall.scheduler.supervisor.slot import Slot
from squall.scheduler.supervisor.worker_life import NOTHING_LEFT, SlotState, WorkerRemains

_EVENT_OF_STATE = {SlotState.STARTING: "started", SlotState.RUNNING: "ready", SlotState.FAILED: "failed"}


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

    def ready(self, message: WorkerReady, now: float) -> list[Order]:
        slot = self._present(message.port, message.incarnation)
        if slot is None:
            return self._refuse(message.port, message.incarnation)
        return self._after(message.port, slot.ready(now), now)

    def failed(self, message: WorkerFailed, now: float) -> list[Order]:
        slot = self._present(message.port, message.incarnation)
        if slot is None:
            return self._refuse(message.port, message.incarnation)
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

    def _refuse(self, port: int, incarnation: int) -> list[Order]:
        return [Order(port, SendStop(incarnation))]


def _standing(slot: Slot, now: float) -> SlotChanged | None:
    """None if the slot's next event will bring a report anyway."""
    event = _EVENT_OF_STATE.get(slot.state)
    if event is None or slot.work is None or (slot.life.pid == 0 and event != "failed"):
        return None
    reason = slot.life.ending() if event == "failed" and slot.life.pid else ""
    return slot.address.changed(slot.work, slot.life, event, now, reason, slot.life.error)


def _identity(work: SlotAssignment) -> tuple[str, int]:
    return work.topology.id, work.slot_index
