"""Nimbus's decisions: which topologies are accepted, where they run, when they end.

Guarantees
    * Pure: no I/O, no clock, no randomness, but for the files that must be ready before work is placed. Each method is
      an event at time `now` (monotonic seconds) and returns instructions; an event that is refused raises and changes
      nothing.
    * Work is placed once its board is made. If there is no room for that, a submission is refused, and any other
      topology waits as for a slot: nothing has to be taken back.
    * A topology that begins anew is stored once the state of earlier ones is set aside. If it cannot be, a submission
      is refused, and a successor waits, with the name and the slots of the one before kept for it.
    * A slot belongs to one topology at a time: a topology that is killed or moves keeps its slots, and its name, until
      each slot is empty. The supervisor reports that; without a supervisor, or without a report in time, the processes
      are looked for (`looked`). Nimbus itself ends workers that take too long.
    * Only nodes that were heard from within NODE_TIMEOUT_SECS, and are not leaving, offer slots. Topologies that found
      no slot wait and are placed in the order of their submission.
    * Work of a node that is leaving is drained and moved away, as by a rebalance; its node hears which of its
      topologies find no slot elsewhere. A Nimbus that has moved none of it yet does so when the node registers again.
    * The work of a topology that the store does not know is not stopped, and its slots are not given away, unless an
      operator asks for it (`forget_unknown`).
    * A slot that gave a topology up gets none of its work again while there is another one, until an operator's reset.
    * A topology that is replaced ends as one that is killed does. Its successor is kept with its record, and begins in
      the moment in which it is forgotten: before all others that wait for its slots, never beside it. Of several
      successors the latest counts; a kill ends the topology and drops its successor.

Relies on: `scheduler.nimbus.main` to carry out the instructions in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from squall.engine.errors import ClusterError, UsageError
from squall.scheduler.common.messages import (
    Assignment,
    AssignNode,
    ClusterState,
    KillTopology,
    Rebalance,
    RebalanceTopology,
    RegisterSupervisor,
    SlotAssignment,
    SlotChanged,
    SlotRef,
    SubmitTopology,
    Successor,
    SupervisorHeartbeat,
    TopologyRecord,
    TopologyState,
)
from squall.scheduler.nimbus.instruction import (
    DeleteTopology,
    DropSuccessor,
    EndWorker,
    NimbusInstruction,
    Note,
    RemoveBoard,
    RemoveUnknown,
    SendAssignNode,
    StoreAssignment,
    StoreRestart,
    StoreTopology,
)
from squall.scheduler.nimbus.known import NODE_TIMEOUT_SECS, Nodes, Topologies, UnknownTopologies
from squall.scheduler.nimbus.placement import place, task_layout, untried, usable
from squall.scheduler.nimbus.submission import check_rebalance, check_submission, check_wait, record_of
from squall.scheduler.nimbus.topology_life import TopologyLife

STOP_PATIENCE_SECS = 10.0
"""Twice the grace that supervisors give a worker: after it, Nimbus no longer counts on the supervisor to end it."""
REPLACE_RETRY_SECS = 1.0
"""Between two tries to set state aside, which fail while a disk is full or a directory read-only."""
ORPHAN_PATIENCE_SECS = 5.0
"""Longest that a worker without a supervisor may stay: a supervisor that returns by then ends it with grace."""

Instructions = list[NimbusInstruction]


class Nimbus:
    """The cluster's state. Thread: Nimbus's loop."""

    def __init__(
        self,
        make_board: Callable[[Assignment], None],
        set_state_aside: Callable[[str, str], None],
        topologies: Iterable[TopologyLife],
        next_number: int,
        now: float,
        deleted: Iterable[str] = (),
        unknown: Iterable[str] = (),
    ) -> None:
        """`make_board` and `set_state_aside` (of a name, for an id) are those of `NimbusFiles`. `deleted`: ids of
        deleted topologies; `unknown`: ids of those that have files but are not in the store."""
        self._make_board = make_board
        self._set_state_aside = set_state_aside
        self._topologies = Topologies(topologies)
        self.unknown = UnknownTopologies(deleted, unknown)
        self._nodes = Nodes()
        self._next_number = next_number
        self._spouts_stopped = False
        self._judges_at = now + NODE_TIMEOUT_SECS
        """Until then, a silent node may be about to register; from then on, it is missing."""
        for life in self._topologies:
            # Restart their clocks: the Nimbus before this one did not store how much time had passed.
            if life.record.status == "KILLED":
                life.stop_at = now + life.record.kill_wait_secs
            elif life.record.rebalance is not None:
                life.stop_at = now + life.record.rebalance.wait_secs

    # ---- supervisors ----

    def register_supervisor(self, request: RegisterSupervisor, now: float) -> Instructions:
        """A node registers, for the first time or again. Answer it with `assign_node` after the instructions."""
        if request.leaves_within_secs is not None:
            check_wait(request.leaves_within_secs)
        self._nodes.register(request, now)
        late = [life.record.id for life in self._topologies if life.registered(request.node, request.holds, now)]
        known = (life.record.id for life in self._topologies)
        strange = self.unknown.registered(request.node, request.holds, known)
        notes = [Note(f"{slot} runs {self.unknown.slots[slot]}, which the store does not know") for slot in strange]
        notes += [Note(f"{request.node} has begun {one} by an older assignment: it stops first") for one in late]
        note = Note(f"{request.node} registered, pid {request.pid}, ports {', '.join(map(str, request.ports))}")
        steps = [*self._clear_if_leaving(request, now), *self._use_free_slots(now)]
        return [note, *notes, *(step for step in steps if step != SendAssignNode(request.node))]

    def _clear_if_leaving(self, request: RegisterSupervisor, now: float) -> Instructions:
        """Begin to move the work of a node that is leaving."""
        if request.leaves_within_secs is None:
            return []
        out: Instructions = [Note(f"{request.node} is leaving, within {request.leaves_within_secs:g} s")]
        for life in self._topologies:
            if request.node not in life.nodes or life.left_at is not None:
                continue
            if life.stop_at is not None:
                # It leaves this node anyway; what is given less time than it had is drained as far as it gets.
                life.stop_at = min(life.stop_at, now + request.leaves_within_secs)
            elif not self._spouts_stopped:
                out += self._move_off(life, now, request.leaves_within_secs)
        return out

    def heartbeat(self, event: SupervisorHeartbeat, now: float) -> Instructions:
        """A node lives. If it was given up, its slots are offered again."""
        if not self._nodes.heard(event.node, now):
            return []
        return [Note(f"{event.node} is back"), SendAssignNode(event.node), *self._use_free_slots(now)]

    def slot_changed(self, event: SlotChanged, now: float) -> Instructions:
        """A worker has started, got ready, died, been given up or stopped."""
        life = self._topologies.by_id(event.topology_id)
        if life is None:
            return []
        known_deaths, slot = life.restarts_total, SlotRef(event.node, event.port)
        out: Instructions = [StoreRestart(event.topology_id, restart) for restart in life.slot_changed(event)]
        if life.restarts_total > known_deaths or event.event == "failed":
            where = f"{event.node}:{event.port} incarnation {event.incarnation} of {life.record.name}"
            out.append(Note(f"{where} {event.event}: {event.reason}"))
        if event.event == "failed" and event.incarnation > 0:
            # Incarnation 0: the supervisor refused the work; no worker has failed.
            out += self._given_up(life, slot, now)
        if event.event == "started" and slot in life.slots and slot in life.record.given_up:
            # A "failed" from before a reset may have arrived after it.
            given_up = [other for other in life.record.given_up if other != slot]
            life.record = replace(life.record, given_up=given_up)
            out.append(StoreTopology(life.record))
        return out + self._finish_if_empty(life, now)

    def _given_up(self, life: TopologyLife, slot: SlotRef, now: float) -> Instructions:
        """A slot has given its work up: store that, and move the work to another slot if there is one."""
        stored: Instructions = []
        if slot not in life.record.given_up:
            life.record = replace(life.record, given_up=[*life.record.given_up, slot])
            stored.append(StoreTopology(life.record))
        return stored + self._leave_failed(life, now)

    def _leave_failed(self, life: TopologyLife, now: float) -> Instructions:
        if life.stop_at is not None or not life.failed_slots or not untried(life.record, self._free_slots()):
            return []
        where = ", ".join(map(str, life.failed_slots))
        return [Note(f"{life.record.id} leaves {where}, given up"), *self._move_off(life, now)]

    # ---- topologies ----

    def submit(
        self, request: SubmitTopology, now: float, created_unix_secs: float, token: str
    ) -> tuple[TopologyRecord, Instructions]:
        """Accept a topology and place it if there is a slot; one that replaces another begins later (`_succeed`).
        `token`: 8 hex digits that make its id unique."""
        record = record_of(request, self.accepts(request, token), created_unix_secs)
        former = self._topologies.get(request.name)
        if former is None:
            if request.fresh:
                self._set_state_aside(record.name, record.id)
            life = TopologyLife(record)
            steps = self._begin(life, self._placed(life, now))
        else:
            steps = self._replace(former, Successor(record, request.fresh), request.replace_wait_secs, now)
        self._next_number += 1
        return record, steps

    def accepts(self, request: SubmitTopology, token: str) -> str:
        """The id that `submit` would give. Raises what that would, and changes nothing."""
        check_submission(request)
        check_wait(request.replace_wait_secs or 0.0)
        if not request.replace:
            self._topologies.check_free(request.name)
        return f"{request.name}-{self._next_number}-{token}"

    def _begin(self, life: TopologyLife, placed: Instructions) -> Instructions:
        self._topologies.add(life)
        return [StoreTopology(life.record), *(placed or [Note(f"{life.record.id} waits for a free slot")])]

    def _replace(
        self, life: TopologyLife, successor: Successor, wait_secs: float | None, now: float
    ) -> Instructions:
        """End a topology, and keep with it what comes in its place."""
        dropped = self._drop_successor(life)
        life.record = replace(life.record, successor=successor)
        if wait_secs is None:
            wait_secs = float(life.record.conf.get("message_timeout_secs", 0.0))
        note = Note(f"{life.record.id} gives way to {successor.topology.id}")
        return [StoreTopology(life.record), note, *dropped, *self._end(life, wait_secs, now)]

    def _drop_successor(self, life: TopologyLife) -> Instructions:
        dropped = life.record.successor
        if dropped is None:
            return []
        life.record = replace(life.record, successor=None)
        topology_id = dropped.topology.id
        return [DropSuccessor(topology_id), Note(f"{topology_id} does not come in the place of {life.record.id}")]

    def _succeed(self, life: TopologyLife, successor: Successor, now: float) -> Instructions:
        """A topology has ended: what comes in its place begins."""
        if life.retry_at is not None and now < life.retry_at:
            return []
        heir = TopologyLife(successor.topology)
        try:
            if successor.fresh:
                self._set_state_aside(heir.record.name, heir.record.id)
        except ClusterError as error:
            life.retry_at = now + REPLACE_RETRY_SECS
            return [Note(f"{heir.record.id} waits: {error}", logging.ERROR)]
        return [*self._forget(life), *self._begin(heir, self._place(heir, now)), *self._use_free_slots(now)]

    def set_status(self, name: str, status: str) -> tuple[TopologyRecord, Instructions]:
        """Let a topology's spouts emit (ACTIVE), or stop them (INACTIVE); bolts go on. Idempotent."""
        life = self._topologies.changeable(name)
        record = life.record
        if record.status == status:
            return record, []
        life.record = record = replace(record, status=status)
        sends = [SendAssignNode(node) for node in life.nodes]
        return record, [StoreTopology(record), Note(f"{record.id} is {status}"), *sends]

    def kill(self, request: KillTopology, now: float) -> tuple[TopologyRecord, Instructions]:
        """Stop a topology's spouts now and its workers once drained. Of several kills the earliest limit counts."""
        check_wait(request.wait_secs)
        life = self._topologies.named(request.name)
        out = self._drop_successor(life)
        if out:
            out.append(StoreTopology(life.record))
        out += self._end(life, request.wait_secs, now)
        return life.record, out

    def _end(self, life: TopologyLife, wait_secs: float, now: float) -> Instructions:
        if not life.slots:
            wait_secs = 0.0  # nothing of it is under way
        killed = life.record.status == "KILLED"
        stop_at = now + wait_secs
        if killed and life.stop_at is not None and life.stop_at <= stop_at:
            return []
        life.stop_at = stop_at if life.stop_at is None else min(stop_at, life.stop_at)
        life.record = record = replace(life.record, status="KILLED", kill_wait_secs=wait_secs)
        out: Instructions = [
            StoreTopology(record),
            Note(f"{record.id} is killed, its workers stop once drained, at the latest in {wait_secs:g} s"),
        ]
        leaving = [*self._leave_if_due(life, now), *self._finish_if_empty(life, now)]
        return out + (leaving or [SendAssignNode(node) for node in life.nodes])

    def rebalance(self, request: RebalanceTopology, now: float) -> tuple[TopologyRecord, Instructions]:
        """Stop a topology's spouts now, its workers once drained, and start it anew on other workers."""
        life = self._topologies.changeable(request.name)
        check_rebalance(request, life.record.components)
        workers = life.record.conf["workers"] if request.workers is None else request.workers
        move = Rebalance(workers, request.executors, request.wait_secs, life.record.status)
        steps = self._begin_move(life, move, now)
        return life.record, steps

    def reset(self, name: str, now: float) -> tuple[TopologyRecord, Instructions]:
        """An operator asks to try again: slots that were given up start anew and may be used again."""
        life = self._topologies.named(name)
        if life.record.status == "KILLED":
            raise UsageError(f"topology {name!r} is KILLED: there is nothing to try again")
        life.record = replace(life.record, given_up=[], resets=life.record.resets + 1)
        steps: Instructions = [StoreTopology(life.record), Note(f"{life.record.id} is reset")]
        sends = [SendAssignNode(node) for node in life.nodes]
        return life.record, [*steps, *sends, *self._use_free_slots(now)]

    def _begin_move(self, life: TopologyLife, move: Rebalance, now: float) -> Instructions:
        life.record = record = replace(life.record, status="REBALANCING", rebalance=move)
        life.stop_at = now + move.wait_secs
        note = Note(f"{record.id} moves once drained, at the latest in {move.wait_secs:g} s")
        leaving = self._leave_if_due(life, now)
        return [StoreTopology(record), note, *(leaving or [SendAssignNode(node) for node in life.nodes])]

    def missing(self, now: float) -> list[tuple[TopologyLife, list[SlotRef]]]:
        """Topologies that run, or drain before they move, with the slots that no living node offers; see `lost`."""
        if now < self._judges_at:
            return []
        there = set(self._nodes.slots)
        return [
            (life, gone)
            for life in self._topologies
            if (gone := [slot for slot in life.slots if slot not in there]) and life.may_move
        ]

    def lost(self, topology_id: str, now: float) -> Instructions:
        """The workers of missing slots are dead too: move their work elsewhere, and only theirs. A topology that drains
        before it moves does so at once: nobody tells its other workers of these deaths, so it would wait in vain."""
        life = self._topologies.by_id(topology_id)
        if life is None or not life.may_move:
            return []
        note = Note(f"{topology_id} has lost workers with their nodes")
        if life.stop_at is None:
            return [note, *self._move_off(life, now)]
        life.stop_at = now
        return [note, *self._leave_if_due(life, now)]

    def _move_off(self, life: TopologyLife, now: float, wait_secs: float = 0.0) -> Instructions:
        """Move work off useless slots, at once or drained; all other work stays."""
        move = Rebalance(life.record.conf["workers"], {}, wait_secs, life.record.status, keep=True)
        return self._begin_move(life, move, now)

    @property
    def has_topologies(self) -> bool:
        return bool(self._topologies)

    def draining(self) -> list[TopologyLife]:
        """The topologies to watch until nothing of them is pending; see `drained`."""
        return [
            life for life in self._topologies
            if life.slots and (life.is_draining or (self._spouts_stopped and life.left_at is None))
        ]

    def finishing(self) -> list[TopologyLife]:
        """The topologies to watch until they have finished; see `finished`."""
        return [
            life for life in self._topologies
            if life.slots and life.record.remove_when_drained and life.stop_at is None
        ]

    def finished(self, topology_id: str, now: float) -> Instructions:
        """The spouts of a topology of `finishing` are exhausted and nothing is pending: it leaves."""
        life = self._topologies.by_id(topology_id)
        if life is None or life.stop_at is not None:
            return []
        _, steps = self.kill(KillTopology(life.record.name), now)
        return [Note(f"{topology_id} has finished, and is removed"), *steps]

    def drained(self, topology_id: str, now: float) -> Instructions:
        """A topology that is being killed or rebalanced has nothing pending any more: go on at once."""
        life = self._topologies.by_id(topology_id)
        if life is None or not life.is_draining:
            return []
        life.stop_at = now
        return [Note(f"{topology_id} is drained"), *self._leave_if_due(life, now)]

    @property
    def is_emptying(self) -> bool:
        """Whether there are slots that a topology must leave and has not left yet."""
        return any(life.left_at is not None and not life.needs_place for life in self._topologies)

    def unaccounted(self, now: float) -> list[tuple[TopologyLife, list[SlotRef]]]:
        """Topologies with the slots that shall be empty, but will not be reported so: see `looked`."""
        alive, found = self._nodes.alive, []
        for life in self._topologies:
            if life.left_at is None or life.needs_place:
                continue
            is_late = now >= life.left_at + STOP_PATIENCE_SECS
            slots = [
                slot for slot in life.occupied
                if is_late or slot.node not in alive or slot in life.overdue | life.unheld
            ]
            if slots:
                found.append((life, slots))
        return found

    def looked(
        self, topology_id: str, slots: Iterable[SlotRef], living: Collection[SlotRef], now: float
    ) -> Instructions:
        """Of `slots`, which `unaccounted` named, those in `living` hold a living worker and the others no process."""
        life = self._topologies.by_id(topology_id)
        if life is None or life.left_at is None:
            return []
        out: Instructions = []
        for slot in slots:
            patience_secs = STOP_PATIENCE_SECS if slot.node in self._nodes.alive else ORPHAN_PATIENCE_SECS
            if slot not in living:
                life.vacated(slot)
            elif now >= life.left_at + patience_secs:
                if slot not in life.overdue:
                    out.append(Note(f"{topology_id}: the worker of {slot} has not stopped in time and is killed"))
                life.overdue.add(slot)
                out.append(EndWorker(life.assignment, slot))
        return [*out, *self._finish_if_empty(life, now)]

    def stop_spouts(self) -> Instructions:
        """Stop all spouts for the life of this Nimbus: the cluster is about to stop."""
        self._spouts_stopped = True
        return [SendAssignNode(node) for node in self._nodes.alive]

    def forget_unknown(self, now: float) -> tuple[list[str], Instructions]:
        """An operator asks to stop and remove unknown topologies; returns their ids."""
        ids, nodes = self.unknown.forget()
        steps: Instructions = []
        for topology_id in ids:
            steps += [RemoveUnknown(topology_id), Note(f"{topology_id}, unknown to the store, is removed")]
        return ids, [*steps, *(SendAssignNode(node) for node in nodes), *self._use_free_slots(now)]

    # ---- time ----

    def tick(self, now: float) -> Instructions:
        """Do all that is due. Call it after all events that arrived by `now`: unread heartbeats would seem missing."""
        out: Instructions = []
        for name in self._nodes.give_up_silent(now):
            silent = f"{name} was not heard from for {NODE_TIMEOUT_SECS:g} s: its slots are not offered"
            out.append(Note(f"{name} has left" if self._nodes.is_leaving(name) else silent))
        for life in self._topologies:
            out += self._leave_if_due(life, now)
            out += self._finish_if_empty(life, now)
        return out

    def next_deadline(self) -> float | None:
        """When `tick` is due next, unless an event comes first."""
        deadlines = [life.stop_at if life.left_at is None else life.retry_at for life in self._topologies]
        return min((at for at in (self._nodes.next_deadline(), *deadlines) if at is not None), default=None)

    # ---- answers ----

    def assign_node(self, node: str) -> AssignNode:
        """All work of a node."""
        slots: dict[int, SlotAssignment] = {}
        for life in self._topologies:
            slots |= life.work_on(node, self._spouts_stopped)
        keep = self.unknown.ports(node)
        work = {port: work for port, work in slots.items() if port not in keep}
        return AssignNode(work, keep, self._without_room(node) if self._nodes.is_leaving(node) else [])

    def _without_room(self, node: str) -> list[str]:
        """Names of a leaving node's topologies for which no other node has a slot, as things are now."""
        free, offered, found = len(self._free_slots()), set(self._nodes.offered()), []
        for life in self._topologies:
            if life.record.status == "KILLED" or node not in life.nodes or not offered.isdisjoint(life.slots):
                continue
            if not free:
                found.append(life.record.name)
            free = max(0, free - life.record.conf["workers"])
        return found

    def topology(self, name: str) -> TopologyState:
        """Everything known of one topology."""
        return self._topologies.named(name).state()

    def cluster(self) -> ClusterState:
        """Everything known of the cluster."""
        return ClusterState(
            supervisors=self._nodes.alive,
            topologies=[life.record for life in self._topologies],
            free_slots=self._free_slots(),
            gone=self._nodes.gone,
            leaving=self._nodes.leaving,
            unknown=self.unknown.ids,
        )

    def assigned(self) -> list[tuple[TopologyRecord, Assignment | None]]:
        """Every topology, and where it runs; None while it has no slot."""
        return [(life.record, life.placed) for life in self._topologies]

    @property
    def supervisor_pids(self) -> dict[str, int]:
        """Pid of every node's supervisor, also of nodes that are gone, but not of those that have left."""
        return self._nodes.pids

    # ---- parts ----

    def _free_slots(self) -> list[SlotRef]:
        taken = self._topologies.taken_slots() | self.unknown.slots.keys()
        return [slot for slot in self._nodes.offered() if slot not in taken]

    def _place_waiting(self, now: float) -> Instructions:
        out: Instructions = []
        placed = True
        while placed:
            # Again: one that takes fewer slots than it had before its move has left some to those before it.
            placed = False
            for life in self._topologies:
                if life.needs_place and life.record.status != "KILLED":
                    out += self._place(life, now)
                    placed = placed or not life.needs_place
        return out

    def _use_free_slots(self, now: float) -> Instructions:
        """Give free slots to waiting topologies; then to those with FAILED slots or with too few workers."""
        out = self._place_waiting(now)
        for life in self._topologies:
            out += self._leave_failed(life, now)
            record = life.record
            squeezed = 0 < len(life.slots) < min(record.conf["workers"], len(task_layout(record.components)))
            if squeezed and life.stop_at is None and untried(record, self._free_slots()):
                wait_secs = float(record.conf.get("message_timeout_secs", 0.0))
                out += self._begin_move(life, Rebalance(record.conf["workers"], {}, wait_secs, record.status), now)
        return out

    def _place(self, life: TopologyLife, now: float) -> Instructions:
        """Give a topology slots, unless it has to wait."""
        try:
            return self._placed(life, now)
        except ClusterError as error:
            return [Note(f"{life.record.id} waits on: {error}", logging.ERROR)]

    def _placed(self, life: TopologyLife, now: float) -> Instructions:
        """Give a topology slots, for the first time or after it has left its own; no instructions if there are none.
        ClusterError, and nothing has changed, if there is no room for its board."""
        record, former = life.moved_record(), life.assignment
        move = life.record.rebalance
        own = set(life.slots) & set(self._nodes.offered())
        keep = move is not None and move.keep
        free = usable(record, own, self._free_slots(), keep)
        before = zip(former.workers, former.executors, strict=True) if keep else ()
        placed = place(record.components, record.conf["workers"], free, before)
        if placed is None:
            return []
        moved, assignment = record != life.record, Assignment(record.id, former.version + 1, *placed)
        self._make_board(assignment)
        unseen = life.assign(record, assignment, now)
        return [
            *([StoreTopology(record)] if moved else []),
            StoreAssignment(assignment),
            *(StoreRestart(record.id, death) for death in unseen),
            *([RemoveBoard(record.id, former.version)] if former.version else []),
            Note(f"{record.id} runs on {', '.join(map(str, life.slots))}"),
            *(SendAssignNode(node) for node in life.nodes),
        ]

    def _leave_if_due(self, life: TopologyLife, now: float) -> Instructions:
        """Empty the slots of a topology when it has to leave them."""
        if not life.is_draining or life.stop_at is None or (now < life.stop_at and not life.is_given_up):
            return []
        life.left_at = now
        return [*(SendAssignNode(node) for node in life.nodes), *self._finish_if_empty(life, now)]

    def _finish_if_empty(self, life: TopologyLife, now: float) -> Instructions:
        """If a topology's slots are empty, forget it if it was killed, for its successor if there is one; else give it
        others."""
        record = life.record
        if life.left_at is None or life.occupied:
            return []
        if record.status != "KILLED":
            return [] if life.needs_place else self._move(life, now)
        if self._topologies.by_id(record.id) is None:
            return []
        if record.successor is not None:
            return self._succeed(life, record.successor, now)
        return [*self._forget(life), *self._use_free_slots(now)]

    def _forget(self, life: TopologyLife) -> Instructions:
        record = life.record
        self._topologies.remove(record.name)
        self.unknown.deleted(record.id)
        note = Note(f"{record.id} is gone")
        return [DeleteTopology(record.id), RemoveBoard(record.id, max(1, life.assignment.version)), note]

    def _move(self, life: TopologyLife, now: float) -> Instructions:
        left, life.needs_place = set(life.nodes), True
        steps = self._place(life, now)
        if life.needs_place:
            return steps or [Note(f"{life.record.id} waits for a free slot to move to")]
        # Other topologies may be waiting for the slots that it left.
        return [*steps, *(SendAssignNode(node) for node in sorted(left - set(life.nodes))), *self._use_free_slots(now)]
