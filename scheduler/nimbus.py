"""Nimbus's decisions: what is accepted, where it runs, when it ends.

Guarantees
    * Pure: no I/O, no clock, no randomness. Each method is an event at time `now` (monotonic seconds) and returns what
      to do about it; an event that is refused raises and changes nothing.
    * A slot belongs to one topology at a time: a killed topology keeps its slots, and its name, until each has said
      that it is empty (or STOP_PATIENCE_SECS have passed).
    * Slots are offered only by nodes that were heard from within NODE_TIMEOUT_SECS. Topologies that found no slot wait
      and are placed in the order of their submission.

Relies on: `scheduler.nimbus_main` to carry out the instructions in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from engine.errors import UsageError
from scheduler.messages import (
    Assignment,
    AssignNode,
    ClusterState,
    KillTopology,
    RegisterSupervisor,
    SlotAssignment,
    SlotChanged,
    SlotRef,
    SubmitTopology,
    SupervisorHeartbeat,
    TopologyRecord,
    TopologyState,
)
from scheduler.nimbus_instruction import (
    CreateBoard,
    DeleteTopology,
    NimbusInstruction,
    Note,
    RemoveBoard,
    SendAssignNode,
    StoreAssignment,
    StoreRestart,
    StoreStatus,
    StoreTopology,
)
from scheduler.placement import place, task_layout
from scheduler.submission import check_submission
from scheduler.topology_life import TopologyLife

NODE_TIMEOUT_SECS = 5.0
"""A node that missed this many seconds of heartbeats (one a second) is gone. Less would blame a busy machine."""
STOP_PATIENCE_SECS = 10.0
"""Twice the grace that supervisors give a worker: a slot that has not said by then that it is empty never will."""
_NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")

Instructions = list[NimbusInstruction]


@dataclass
class _Node:
    ports: list[int]
    pid: int
    heard_at: float
    alive: bool = True


class Nimbus:
    """The cluster's state. Owner: Nimbus's loop."""

    def __init__(self, topologies: Iterable[TopologyLife], next_number: int, now: float) -> None:
        self._topologies = {life.record.name: life for life in topologies}
        self._nodes: dict[str, _Node] = {}
        self._next_number = next_number
        for life in self._topologies.values():
            if life.record.status == "KILLED":
                # Its clock starts again: how much had passed went with the Nimbus before us.
                life.remove_at = now + life.kill_wait_secs

    # ---- supervisors ----

    def register_supervisor(self, request: RegisterSupervisor, now: float) -> Instructions:
        """A node is there, for the first time or again. Answer it with `assign_node` after the instructions."""
        if not _NODE_NAME.fullmatch(request.node):
            raise UsageError(f"node name {request.node!r:.80} is not allowed: 1 to 64 letters, digits, '_', '-', '.'")
        self._nodes[request.node] = _Node(sorted(set(request.ports)), request.pid, heard_at=now)
        note = Note(f"{request.node} registered, pid {request.pid}, ports {', '.join(map(str, request.ports))}")
        return [note, *(step for step in self._place_waiting() if step != SendAssignNode(request.node))]

    def heartbeat(self, event: SupervisorHeartbeat, now: float) -> Instructions:
        """A node lives. One that was given up is offered again."""
        node = self._nodes.get(event.node)
        if node is None:
            return []
        node.heard_at = now
        if node.alive:
            return []
        node.alive = True
        return [Note(f"{event.node} is back"), SendAssignNode(event.node), *self._place_waiting()]

    def slot_changed(self, event: SlotChanged, now: float) -> Instructions:
        """A worker started, got ready, died, was given up or stopped."""
        life = next((life for life in self._topologies.values() if life.record.id == event.topology_id), None)
        if life is None:
            return []
        known_deaths = life.restarts_total
        out: Instructions = [StoreRestart(event.topology_id, restart) for restart in life.slot_changed(event)]
        if life.restarts_total > known_deaths or event.event == "failed":
            where = f"{event.node}:{event.port} incarnation {event.incarnation} of {life.record.name}"
            out.append(Note(f"{where} {event.event}: {event.reason}"))
        return out + self._remove_if_empty(life, now)

    # ---- topologies ----

    def submit(
        self, request: SubmitTopology, now: float, created_unix_secs: float, token: str
    ) -> tuple[TopologyRecord, Instructions]:
        """Accept a topology and place it if there is a slot. `token`: 8 hex digits that make its id unique."""
        check_submission(request)
        if request.name in self._topologies:
            raise UsageError(self._taken(request.name))
        record = TopologyRecord(
            id=f"{request.name}-{self._next_number}-{token}",
            name=request.name,
            status=request.status,
            conf=request.conf,
            components=request.components,
            blob=request.blob,
            sys_path=request.sys_path,
            created_unix_secs=created_unix_secs,
        )
        self._next_number += 1
        life = self._topologies[request.name] = TopologyLife(record)
        placed = self._place(life)
        if not placed:
            return record, [StoreTopology(record), Note(f"{record.id} waits for a free slot")]
        board, *rest = placed
        return record, [board, StoreTopology(record), *rest]

    def activate(self, name: str) -> tuple[TopologyRecord, Instructions]:
        """Let a topology's spouts emit. Idempotent."""
        return self._set_status(name, "ACTIVE")

    def deactivate(self, name: str) -> tuple[TopologyRecord, Instructions]:
        """Stop a topology's spouts; bolts go on. Idempotent."""
        return self._set_status(name, "INACTIVE")

    def kill(self, request: KillTopology, now: float) -> tuple[TopologyRecord, Instructions]:
        """Stop a topology's spouts now and its workers after `wait_secs`. Of several kills the earliest counts."""
        if not 0 <= request.wait_secs < float("inf"):
            raise UsageError(f"wait_secs is {request.wait_secs}, allowed is a number of seconds from 0 up")
        life = self._named(request.name)
        remove_at = now + request.wait_secs
        if life.remove_at is not None and life.remove_at <= remove_at:
            return life.record, []
        life.remove_at = remove_at
        life.set_status("KILLED")
        record = life.record
        out: Instructions = [
            StoreStatus(record.id, "KILLED", request.wait_secs),
            Note(f"{record.id} is killed, its workers stop in {request.wait_secs:g} s"),
        ]
        leaving = self._leave_if_due(life, now)
        return record, out + (leaving or [SendAssignNode(node) for node in life.nodes])

    def withdraw(self, name: str) -> None:
        """A submission that was accepted could not be carried out: forget it. Called before anybody heard of it."""
        del self._topologies[name]

    def unplace(self, topology_id: str) -> None:
        """An assignment could not be carried out: the topology waits again. Called before anybody heard of it."""
        for life in self._topologies.values():
            if life.record.id == topology_id:
                life.assignment = None

    # ---- time ----

    def tick(self, now: float) -> Instructions:
        """Do what is due. To be called after all events that had come by `now`, or waiting ones would look missing."""
        out: Instructions = []
        for name, node in self._nodes.items():
            if node.alive and now - node.heard_at >= NODE_TIMEOUT_SECS:
                node.alive = False
                out.append(Note(f"{name} was not heard from for {NODE_TIMEOUT_SECS:g} s: its slots are not offered"))
        for life in list(self._topologies.values()):
            out += self._leave_if_due(life, now)
            out += self._remove_if_empty(life, now)
        return out

    def next_deadline(self) -> float | None:
        """When `tick` will have something to do, if nothing else happens before."""
        deadlines = [node.heard_at + NODE_TIMEOUT_SECS for node in self._nodes.values() if node.alive]
        for life in self._topologies.values():
            at = life.remove_at if life.gone_at is None else life.gone_at
            if at is not None:
                deadlines.append(at)
        return min(deadlines, default=None)

    # ---- answers ----

    def assign_node(self, node: str) -> AssignNode:
        """What the node must run, all of it."""
        slots: dict[int, SlotAssignment] = {}
        for life in self._topologies.values():
            slots |= life.work_on(node)
        return AssignNode(slots)

    def topology(self, name: str) -> TopologyState:
        """Everything known of one topology."""
        return self._named(name).state()

    def cluster(self) -> ClusterState:
        """Everything known of the cluster."""
        return ClusterState(
            supervisors={name: node.ports for name, node in sorted(self._nodes.items()) if node.alive},
            topologies=[life.record for life in self._topologies.values()],
            free_slots=self._free_slots(),
            gone=sorted(name for name, node in self._nodes.items() if not node.alive),
        )

    @property
    def supervisor_pids(self) -> dict[str, int]:
        """Process of every node's supervisor, also of nodes that are gone."""
        return {name: node.pid for name, node in self._nodes.items()}

    # ---- parts ----

    def _named(self, name: str) -> TopologyLife:
        life = self._topologies.get(name)
        if life is None:
            running = ", ".join(repr(other) for other in self._topologies) or "none"
            raise UsageError(f"there is no topology named {name!r:.80}; running: {running}")
        return life

    def _taken(self, name: str) -> str:
        if self._topologies[name].record.status == "KILLED":
            return f"a topology named {name!r} is still being killed"
        return f"a topology named {name!r} is already running"

    def _set_status(self, name: str, status: str) -> tuple[TopologyRecord, Instructions]:
        life = self._named(name)
        record = life.record
        if record.status == status:
            return record, []
        if record.status not in ("ACTIVE", "INACTIVE"):
            raise UsageError(f"topology {name!r} is {record.status}: only ACTIVE and INACTIVE ones can change")
        life.set_status(status)
        sends = [SendAssignNode(node) for node in life.nodes]
        return life.record, [StoreStatus(record.id, status), Note(f"{record.id} is {status}"), *sends]

    def _free_slots(self) -> list[SlotRef]:
        taken = {slot for life in self._topologies.values() for slot in life.slots}
        offered = [SlotRef(name, port) for name, node in self._nodes.items() if node.alive for port in node.ports]
        return sorted((slot for slot in offered if slot not in taken), key=lambda slot: (slot.node, slot.port))

    def _place_waiting(self) -> Instructions:
        out: Instructions = []
        for life in self._topologies.values():
            if life.assignment is None and life.record.status != "KILLED":
                out += self._place(life)
        return out

    def _place(self, life: TopologyLife) -> Instructions:
        """Give a topology slots; nothing if there are none."""
        record = life.record
        kinds = {component.id: component.kind for component in record.components}
        executors = task_layout(record.components)
        placed = place(executors, record.conf["workers"], self._free_slots(), kinds)
        if placed is None:
            return []
        life.assignment = Assignment(record.id, 1, *placed)
        n_tasks = max(executor.last_task for executor in executors)
        return [
            CreateBoard(record.id, len(life.slots), n_tasks),
            StoreAssignment(life.assignment),
            Note(f"{record.id} runs on {', '.join(map(str, life.slots))}"),
            *(SendAssignNode(node) for node in life.nodes),
        ]

    def _leave_if_due(self, life: TopologyLife, now: float) -> Instructions:
        """Empty the slots of a killed topology whose time is up."""
        if life.remove_at is None or life.gone_at is not None or now < life.remove_at:
            return []
        life.gone_at = now + STOP_PATIENCE_SECS
        return [*(SendAssignNode(node) for node in life.nodes), *self._remove_if_empty(life, now)]

    def _remove_if_empty(self, life: TopologyLife, now: float) -> Instructions:
        """Forget a topology whose slots are empty, and give them to those that wait."""
        alive = {name for name, node in self._nodes.items() if node.alive}
        record = life.record
        if life.gone_at is None or not (life.is_empty(alive) or now >= life.gone_at):
            return []
        if self._topologies.pop(record.name, None) is None:
            return []
        note = Note(f"{record.id} is gone")
        return [DeleteTopology(record.id), RemoveBoard(record.id), note, *self._place_waiting()]
