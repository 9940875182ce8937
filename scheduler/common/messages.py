"""The control plane's vocabulary: every message that Nimbus, supervisors, workers and clients exchange.

Guarantees: each message is a frozen struct with a closed set of typed fields, so a frame that decodes is a frame that
makes sense; unknown fields are refused. Nothing here does I/O or imports user code.

Relies on: `ipc.control` to sign, carry and decode the frames.

Process layout these messages travel in::

    client ──request──► Nimbus ──AssignNode──► supervisor ──Fork──► forking parent ──► worker
                           ▲                       │  ▲                                  │
                           └── SlotChanged ────────┘  └────────── WorkerReady/Failed ────┘
"""

from __future__ import annotations

from typing import Any

import msgspec

from squall.ipc.rundir import assignment_tag


class Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all control messages."""


class ComponentSummary(Wire):
    """What Nimbus needs to know of a component; it never loads user code."""

    id: str
    kind: str
    """"spout", "bolt" or "acker"."""
    tasks: int
    executors: int


class SlotRef(Wire):
    """A place a worker can live: a port of a node."""

    node: str
    port: int

    def __str__(self) -> str:
        return f"{self.node}:{self.port}"


class ExecutorRef(Wire):
    """Tasks `first_task..last_task` of one component, run by one executor."""

    component: str
    first_task: int
    last_task: int


class Assignment(Wire):
    """Where every executor of a topology runs. `workers[i]` is worker i (its *slot index*); `executors[i]` its work."""

    topology_id: str
    version: int
    workers: list[SlotRef]
    executors: list[list[ExecutorRef]]


class Rebalance(Wire):
    """How a topology is to run after it has moved."""

    workers: int
    executors: dict[str, int]
    """Per component; those that are not named keep what they have."""
    wait_secs: float
    status: str
    """What the topology's status will be again: "ACTIVE" or "INACTIVE"."""
    keep: bool = False
    """Only what lies on slots that are lost gets others; the rest stays where it is."""


class TopologyRecord(Wire):
    """A submitted topology as Nimbus stores it and everyone else reads it."""

    id: str
    name: str
    status: str
    """"ACTIVE", "INACTIVE", "REBALANCING" or "KILLED"."""
    conf: dict[str, Any]
    """Resolved Config, every key present (see engine.api.config)."""
    components: list[ComponentSummary]
    blob: str
    """Content address (sha256 hex) of the cloudpickled topology in the code store."""
    sys_path: list[str]
    """Import path of the submitting program, so that workers import the same modules."""
    created_unix_secs: float
    rebalance: Rebalance | None = None
    """The move under way, while the status is "REBALANCING"."""
    given_up: list[SlotRef] = []
    """Slots whose workers died too often: not used for this topology again until an operator resets it."""
    resets: int = 0
    """How often that was done. A slot that hears of a new one starts anew."""


class SlotAssignment(Wire):
    """What a supervisor must run in one slot."""

    topology: TopologyRecord
    assignment: Assignment
    slot_index: int


# ---- Nimbus -> supervisor (events) ----


class AssignNode(Wire):
    """The complete desired state of one node: port -> work, absent ports must be empty. Idempotent."""

    slots: dict[int, SlotAssignment]
    keep: list[int] = []
    """Ports whose work Nimbus does not know: it stays as it is until an operator says otherwise."""


class Shutdown(Wire):
    """Stop every worker politely, then by force after `grace_secs`, then exit."""

    grace_secs: float
    drain_secs: float = 0.0
    """Said to Nimbus: before that, stop the spouts and wait for what is pending, at most so long."""


# ---- supervisor -> Nimbus ----


class RegisterSupervisor(Wire):
    """Request; the reply is an AssignNode."""

    node: str
    ports: list[int]
    pid: int
    holds: dict[int, str] = {}
    """Of each slot that has work, port -> id of the topology."""


class SlotChanged(Wire):
    """Event: a slot's life took a step. `event` is "started", "ready", "died", "failed", "stopped"."""

    node: str
    port: int
    topology_id: str
    incarnation: int
    event: str
    pid: int
    at_monotonic_secs: float
    reason: str = ""
    """For "died": e.g. "killed by SIGKILL", "exited with code 1"."""
    error: str = ""
    """For "died": the error the worker reported before it died, if any (one line, then traceback), or the Python stacks
    of one that crashed or hung."""
    rss_bytes: int = 0
    """Of one that ended: the memory it occupied shortly before; 0 if unknown."""
    working_secs: float = 0.0
    """Of one that ended: when it was first seen to work, by the monotonic clock; 0.0 if it never was."""
    excused: bool = False
    """Of one that died: that brought a dead letter nearer, so it says nothing against the slot."""


class SupervisorHeartbeat(Wire):
    """Event, every second."""

    node: str
    at_monotonic_secs: float


# ---- worker -> supervisor (events) ----


class WorkerReady(Wire):
    """The worker's sockets are bound and its executors prepared."""

    port: int
    incarnation: int
    pid: int


class WorkerFailed(Wire):
    """The last words of a worker about to exit with a code other than 0."""

    port: int
    incarnation: int
    component: str
    task: int
    error: str
    traceback: str


# ---- supervisor -> worker (events) ----


class SetStatus(Wire):
    """Topology status: "ACTIVE" lets spouts emit, anything else stops them."""

    status: str


class StopWorker(Wire):
    """Call cleanup/close of every task, then exit with code 0."""


# ---- supervisor -> forking parent, and back (over their socket pair) ----


class WorkerBoot(Wire):
    """Everything a forked worker needs to start; handed to `scheduler.worker.main`."""

    run_dir: str
    node: str
    port: int
    incarnation: int
    slot_index: int
    topology: TopologyRecord
    assignment: Assignment
    log_path: str

    @property
    def sender(self) -> str:
        """What the worker calls itself towards its supervisor. Its slot and incarnation alone may be another's too."""
        tag = assignment_tag(self.topology.id, self.assignment.version)
        return f"worker:{tag}:{self.node}:{self.port}:{self.incarnation}"


# ---- client -> Nimbus (requests) ----


class SubmitTopology(Wire):
    """Reply: the TopologyRecord."""

    name: str
    conf: dict[str, Any]
    components: list[ComponentSummary]
    blob: str
    sys_path: list[str]
    status: str = "ACTIVE"
    fresh: bool = False
    """Once it is accepted, remove the state that tasks of an earlier topology of this name have left."""


class NamedTopology(Wire):
    """Argument of get_topology, activate, deactivate."""

    name: str


class KillTopology(Wire):
    """Stop the spouts; remove the topology as soon as nothing is pending, at the latest after `wait_secs`."""

    name: str
    wait_secs: float = 0.0


class RebalanceTopology(Wire):
    """Stop the spouts; move the topology as soon as nothing is pending, at the latest after `wait_secs`."""

    name: str
    workers: int | None = None
    """None: as many as before."""
    executors: dict[str, int] = {}
    wait_secs: float = 0.0


class GetCluster(Wire):
    """Argument of get_cluster."""


class RestartRecord(Wire):
    """One death and what came of it, for reports."""

    slot: str
    incarnation: int
    reason: str
    error: str
    at_monotonic_secs: float
    ready_after_secs: float | None
    """None while the replacement is not ready yet."""
    rss_bytes: int = 0
    working_after_secs: float | None = None
    """When the replacement was first seen to work; None until that is known to Nimbus, which is when it has ended."""


class TopologyState(Wire):
    """Reply of get_topology: record, assignment (None while no slot is free) and history."""

    topology: TopologyRecord
    assignment: Assignment | None
    workers: dict[str, str]
    """"node:port" -> "starting" | "ready" | "died" | "failed" | "stopped"."""
    restarts: list[RestartRecord]
    """The newest deaths, oldest first (bounded)."""
    restarts_total: int = 0
    """All deaths since the topology was submitted."""


class ClusterState(Wire):
    """Reply of get_cluster."""

    supervisors: dict[str, list[int]]
    topologies: list[TopologyRecord]
    free_slots: list[SlotRef]
    gone: list[str] = []
    """Nodes whose supervisor was not heard from for too long. Their free slots are not offered."""
    refused_frames: int = 0
    """Control frames that Nimbus dropped because they were not to be believed, and connections it did not let in."""
    unknown: list[str] = []
    """Ids of topologies that have workers or files, and that the store does not know. They are left alone."""


class ForgetUnknown(Wire):
    """Request: an operator says that what Nimbus does not know may be stopped and removed. The reply says what."""

    ids: list[str] = []
