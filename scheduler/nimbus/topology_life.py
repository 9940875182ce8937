"""One topology as Nimbus sees it: its assignment, its workers' states and deaths, and the stage of its end.

Guarantees: news of an older incarnation of a slot never hides news of a newer one; a death is recorded once, however
often it is reported; memory is bounded (the newest RESTARTS_KEPT deaths, error texts of ERROR_MAX_CHARS).

Pure: no I/O, no clock. Thread: Nimbus's loop.

Stages of its end, and of a move::

    running ──kill──────► KILLED       ─┐ until drained,         ┌─► leaving: slots emptied, ─┬─► gone
            ──rebalance─► REBALANCING  ─┘ at most until `stop_at` ┘   until each is "stopped"  └─► placed anew, running

One that shall be removed when it has finished is killed by Nimbus then. One that is replaced is killed, too; when it is
gone, its successor comes in its place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from squall.scheduler.common.messages import (
    Assignment,
    RestartRecord,
    SlotAssignment,
    SlotChanged,
    SlotRef,
    TopologyRecord,
    TopologyState,
)

RESTARTS_KEPT = 1000
"""Deaths kept, as in Nimbus's books: more tell an operator nothing new, fewer hide how a crash loop began."""
ERROR_MAX_CHARS = 4000
"""Characters kept of an error, its first line and its end: a thousand such still fit into one control frame."""

_STATE_OF_EVENT = {"started": "starting", "ready": "ready", "died": "died", "failed": "failed", "stopped": "stopped"}


class TopologyLife:
    """Mutable state of one topology."""

    def __init__(
        self,
        record: TopologyRecord,
        assignment: Assignment | None = None,
        restarts: Iterable[RestartRecord] = (),
        restarts_total: int = 0,
    ) -> None:
        self.record = record
        self.assignment = assignment or Assignment(record.id, 0, [], [])
        """The newest one, even after it was left; version 0, without slots, before the first."""
        self.restarts_total = restarts_total
        self.stop_at: float | None = None
        """Latest time at which the slots of a killed or rebalanced topology are emptied."""
        self.left_at: float | None = None
        """When its workers were told to stop, to empty its slots; None if they were not."""
        self.retry_at: float | None = None
        """When its successor is tried again, for which state could not be set aside."""
        self.overdue: set[SlotRef] = set()
        """Slots whose workers Nimbus itself has begun to end."""
        self.unheld: set[SlotRef] = set()
        """Slots to be emptied of which a supervisor that came back knows nothing: it will report nothing either."""
        self.needs_place = assignment is None
        """Whether it waits for slots, for the first time or at the end of a move: its old ones are empty."""
        self._restarts: OrderedDict[tuple[str, int], RestartRecord] = OrderedDict(
            ((restart.slot, restart.incarnation), restart) for restart in restarts
        )
        self._last_death: dict[str, int] = {}
        """Slot -> its latest incarnation whose death was counted: deaths of a slot come in their order, or again."""
        for slot, incarnation in self._restarts:
            self._last_death[slot] = max(incarnation, self._last_death.get(slot, 0))
        self._slots: dict[SlotRef, tuple[int, str]] = {}
        """Slot -> newest incarnation heard of, and its state."""

    @property
    def slots(self) -> list[SlotRef]:
        """The slots that it occupies."""
        return self.assignment.workers

    @property
    def placed(self) -> Assignment | None:
        """Where it runs, or ran until its slots were emptied; None before it had any."""
        return self.assignment if self.assignment.version else None

    @property
    def failed_slots(self) -> list[SlotRef]:
        """The slots that have given its work up."""
        return [slot for slot in self.slots if self._state_of(slot) == "failed" and slot in self.record.given_up]

    @property
    def known_incarnations(self) -> Collection[tuple[str, int]]:
        """Slot and incarnation of the deaths on record."""
        return self._restarts.keys()

    @property
    def nodes(self) -> list[str]:
        """The nodes on which it occupies slots, sorted."""
        return sorted({slot.node for slot in self.slots})

    def state(self) -> TopologyState:
        """All that a client may know of it."""
        return TopologyState(
            topology=self.record,
            assignment=self.placed,
            workers={str(slot): self._state_of(slot) for slot in self.slots},
            restarts=list(self._restarts.values()),
            restarts_total=self.restarts_total,
        )

    def work_on(self, node: str, spouts_stopped: bool = False) -> dict[int, SlotAssignment]:
        """The work of the node's slots for this topology, by port; `spouts_stopped`: with its spouts stopped."""
        if self.left_at is not None:
            return {}
        stopped = spouts_stopped and self.record.status == "ACTIVE"
        # What comes after it is nothing to its workers.
        record = replace(self.record, status="INACTIVE" if stopped else self.record.status, successor=None)
        return {
            slot.port: SlotAssignment(record, self.assignment, index)
            for index, slot in enumerate(self.slots)
            if slot.node == node
        }

    @property
    def is_draining(self) -> bool:
        """Whether its slots will be emptied as soon as nothing is pending."""
        return self.stop_at is not None and self.left_at is None

    @property
    def may_move(self) -> bool:
        """Whether it stays, or will be placed anew as soon as nothing is pending."""
        return self.stop_at is None or (self.is_draining and self.record.status == "REBALANCING")

    @property
    def is_given_up(self) -> bool:
        """Whether all its slots have FAILED: no worker of it will start again by itself."""
        return bool(self.slots) and all(self._state_of(slot) == "failed" for slot in self.slots)

    def moved_record(self) -> TopologyRecord:
        """The record after the move under way."""
        move = self.record.rebalance
        if move is None:
            return self.record
        components = [
            replace(component, executors=move.executors.get(component.id, component.executors))
            for component in self.record.components
        ]
        conf = {**self.record.conf, "workers": move.workers}
        return replace(self.record, status=move.status, conf=conf, components=components, rebalance=None)

    def assign(self, record: TopologyRecord, assignment: Assignment, now: float = 0.0) -> list[RestartRecord]:
        """Note that it runs on other slots from now on, with newer incarnations. Returns the deaths that no supervisor
        is left to report: those of a node that is gone."""
        ends = [
            SlotChanged(slot.node, slot.port, record.id, incarnation, "died", 0, now, reason="died with its node")
            for slot, (incarnation, state) in self._slots.items() if state == "ready"
        ]
        unseen = [death for end in ends for death in self._died(f"{end.node}:{end.port}", end)]
        first = 1 + max((incarnation for incarnation, _ in self._slots.values()), default=-1)
        self._slots = dict.fromkeys(assignment.workers, (first, "starting"))
        self.record, self.assignment = record, assignment
        self.stop_at = self.left_at = None
        self.overdue.clear()
        self.unheld.clear()
        self.needs_place = False
        return unseen

    @property
    def occupied(self) -> list[SlotRef]:
        """The slots that may hold a process: they were not reported empty."""
        return [slot for slot in self.slots if self._state_of(slot) not in ("stopped", "failed")]

    def registered(self, node: str, holds: Mapping[int, str], now: float) -> bool:
        """Note a supervisor's word, at its registration, which topology each of its slots works for. True if one that
        was empty works for this one, which is to leave it: an older assignment was carried out late."""
        if self.left_at is None:
            return False
        held = {slot for slot in self.slots if slot.node == node and holds.get(slot.port) == self.record.id}
        again = {slot for slot in held if self._state_of(slot) == "stopped"}
        for slot in again:
            self._slots[slot] = (self._slots[slot][0], "starting")
        if again:
            # Its supervisor gets the time to end the worker that any other has.
            self.left_at, self.needs_place = now, False
        own = {slot for slot in self.occupied if slot.node == node}
        self.unheld = (self.unheld | own) - held
        self.overdue -= again
        return bool(again)

    def vacated(self, slot: SlotRef) -> None:
        """Note that a slot holds no process any more, though its supervisor did not report it."""
        self._slots[slot] = (self._slots.get(slot, (0, ""))[0], "stopped")

    def slot_changed(self, event: SlotChanged) -> list[RestartRecord]:
        """Note a change; returns new and updated deaths, to be stored."""
        slot = SlotRef(event.node, event.port)
        if slot not in self.slots:
            return []
        if event.incarnation >= self._slots.get(slot, (0, ""))[0]:
            self._slots[slot] = (event.incarnation, _STATE_OF_EVENT.get(event.event, event.event))
        if event.event in ("died", "stopped"):
            worked = self._worked(str(slot), event)
            return worked + (self._died(str(slot), event) if event.event == "died" else [])
        if event.event == "ready":
            return self._ready(str(slot), event)
        return []

    def _worked(self, slot: str, event: SlotChanged) -> list[RestartRecord]:
        """A replacement has ended: note when it first worked, counted from the death before it."""
        death = self._restarts.get((slot, event.incarnation - 1))
        if death is None or not event.working_secs or death.working_after_secs is not None:
            return []
        known = replace(death, working_after_secs=event.working_secs - death.at_monotonic_secs)
        self._restarts[slot, death.incarnation] = known
        return [known]

    def _state_of(self, slot: SlotRef) -> str:
        return self._slots.get(slot, (0, "starting"))[1]

    def _died(self, slot: str, event: SlotChanged) -> list[RestartRecord]:
        if event.incarnation <= self._last_death.get(slot, 0):
            return []
        self._last_death[slot] = event.incarnation
        death = RestartRecord(
            slot, event.incarnation, event.reason, _shortened(event.error), event.at_monotonic_secs, None,
            event.rss_bytes,
        )
        self._restarts[slot, event.incarnation] = death
        self.restarts_total += 1
        if len(self._restarts) > RESTARTS_KEPT:
            self._restarts.popitem(last=False)
        return [death]

    def _ready(self, slot: str, event: SlotChanged) -> list[RestartRecord]:
        changed = []
        for key, death in self._restarts.items():
            if key[0] == slot and key[1] < event.incarnation and death.ready_after_secs is None:
                changed.append(replace(death, ready_after_secs=event.at_monotonic_secs - death.at_monotonic_secs))
        for death in changed:
            self._restarts[slot, death.incarnation] = death
        return changed


def _shortened(error: str) -> str:
    if len(error) <= ERROR_MAX_CHARS:
        return error
    first_line = error.split("\n", 1)[0][: ERROR_MAX_CHARS // 4]
    return f"{first_line}\n[...]\n{error[-(ERROR_MAX_CHARS // 2) :]}"
