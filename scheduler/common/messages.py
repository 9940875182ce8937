"""The control plane's vocabulary: every message that Nimbus, supervisors, workers and clients exchange.

Guarantees: each message is a frozen struct with a closed set of typed fields, so a frame that decodes is well-formed;
unknown fields are refused. Nothing here does I/O or imports user code.

Relies on: `ipc.control` to sign, carry and decode the frames.

The processes between which they travel::

    client ──request──► Nimbus ──AssignNode──► supervisor ──Fork──► forking parent ──► worker
                           ▲                       │  ▲                                  │
                           └── SlotChanged ────────┘  └────────── WorkerReady/Failed ────┘
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from squall.engine.api.plan import ExecutorPlan
from squall.ipc.rundir import RunDir, assignment_tag


class Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all control messages."""


class InputSummary(Wire):
    """A stream that a bolt reads."""

    component: str
    stream: str
    grouping: str
    """"shuffle", "fields", "all", "global", "local_or_shuffle", "direct", "custom" and so on."""
    fields: list[str] = []


class ComponentSummary(Wire):
    """The facts about a component for Nimbus and for people; neither Nimbus nor what shows it loads user code."""

    id: str
    kind: str
    """"spout", "bolt" or "acker"."""
    tasks: int
    executors: int
    inputs: list[InputSummary] = []
    outputs: dict[str, list[str]] = {}
    """Fields of each stream that it emits."""
    has_state: bool = False
    """Whether its tasks count each tuple once (`engine.state`)."""
    windows: str = ""
    """What it has declared of its windows, packed (`engine.state.windowing.windows`)."""


class SlotRef(Wire):
    """A slot: a port of a node."""

    node: str
    port: int

    def __str__(self) -> str:
        return f"{self.node}:{self.port}"


class Assignment(Wire):
    """The slots of a topology's executors: worker i has slot `workers[i]` and runs `executors[i]`."""

    topology_id: str
    version: int
    workers: list[SlotRef]
    executors: list[list[ExecutorPlan]]


class Rebalance(Wire):
    """How a topology shall run after a move."""

    workers: int
    executors: dict[str, int]
    """Executors per component; components that are not named keep theirs."""
    wait_secs: float
    status: str
    """The topology's status after the move: "ACTIVE" or "INACTIVE"."""
    keep: bool = False
    """Move executors on lost slots only; all others stay."""


class TopologyRecord(Wire):
    """A submitted topology as Nimbus stores it and others read it."""

    id: str
    name: str
    status: str
    """"ACTIVE", "INACTIVE", "REBALANCING" or "KILLED"."""
    conf: dict[str, Any]
    """The resolved Config, with every key (see engine.api.config)."""
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
    """Number of resets. A slot that hears of another one starts anew."""
    remove_when_drained: bool = False
    """Whether Nimbus removes it when its spouts are exhausted and nothing is pending."""
    cwd: str = ""
    """The working directory of its workers; "" for that of the daemons."""
    env_names: list[str] = []
    """Variables that its workers get. Their values may be secrets: see `scheduler.common.environment`."""
    successor: Successor | None = None
    """What takes its place when it is gone, while the status is "KILLED"."""
    kill_wait_secs: float = 0.0
    """How long it may still run after the last kill, while the status is "KILLED"."""


class Successor(Wire):
    """The topology that takes the place of another one."""

    topology: TopologyRecord
    fresh: bool = False
    """As in SubmitTopology."""


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
    """Ports whose work Nimbus does not know: it goes on until an operator says otherwise."""
    without_room: list[str] = []
    """To a node that is leaving: names of its topologies for which no other node has a slot now."""


class Shutdown(Wire):
    """Stop every worker politely, then by force after `grace_secs`, then exit."""

    grace_secs: float
    drain_secs: float = 0.0
    """To Nimbus: before that, stop the spouts and wait at most so long until nothing is pending."""


class FaultsChanged(Wire):
    """The file of the faults in force was written: what of it a supervisor carries out may be another."""


# ---- supervisor -> Nimbus ----


class RegisterSupervisor(Wire):
    """Request; the reply is an AssignNode."""

    node: str
    ports: list[int]
    pid: int
    holds: dict[int, str] = {}
    """Port -> id of the topology, of each slot that has work."""
    leaves_within_secs: float | None = None
    """The node is leaving: it shall get no more work, and what it has shall be drained and moved away in this time."""
    started_ticks: int = 0
    """When its process started, as `scheduler.common.process.start_time_ticks`: tells it from one that died before."""


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
    """For "died": the error that the worker reported before, if any (one line, then traceback), or its Python stacks if
    it crashed or hung."""
    rss_bytes: int = 0
    """When a worker has ended: the memory that it occupied shortly before; 0 if unknown."""
    working_secs: float = 0.0
    """When a worker has ended: when it first worked, in seconds of the monotonic clock; 0.0 if never."""
    excused: bool = False
    """For "died": the death brought a dead letter nearer, so it does not count against the slot."""
    slot_index: int = -1
    """The worker's index in its assignment, for the history."""

    @property
    def slot(self) -> str:
        return f"{self.node}:{self.port}"


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
    error: str
    """Names the component and task whose code it was, if it was a task's."""
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
    def socket(self) -> Path:
        """Where the worker listens."""
        version = self.assignment.version
        return RunDir(self.run_dir).worker_socket(self.topology.id, version, self.node, self.port, self.incarnation)

    @property
    def sender(self) -> str:
        """The worker's name on the control plane. Slot and incarnation alone may be another worker's too."""
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
    """Once it is accepted, remove the state of earlier topologies of this name."""
    remove_when_drained: bool = False
    """As in TopologyRecord."""
    cwd: str = ""
    env: dict[str, str] = {}
    """Variables for its workers. Nimbus keeps them in a file of their own, never in its store."""
    replace: bool = False
    """If there is a topology of this name, drain and remove it, then start this one in its place."""
    replace_wait_secs: float | None = None
    """Longest time for that drain; None: the message timeout of the one that drains."""


class NamedTopology(Wire):
    """Argument of get_topology, activate, deactivate."""

    name: str


class KillTopology(Wire):
    """Stop the spouts; remove the topology as soon as nothing is pending, at the latest after `wait_secs`. Its
    successor, if it has one, is dropped."""

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
    """A death and its replacement, for reports."""

    slot: str
    incarnation: int
    reason: str
    error: str
    at_monotonic_secs: float
    ready_after_secs: float | None
    """None while the replacement is not ready yet."""
    rss_bytes: int = 0
    working_after_secs: float | None = None
    """When the replacement first worked; None until Nimbus knows, which is when the replacement has ended."""


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
    """Nodes whose supervisor has been silent for too long. Their free slots are not offered."""
    leaving: list[str] = []
    """Nodes that get no more work, because their supervisor was told to end."""
    refused_frames: int = 0
    """Control frames that Nimbus dropped unverified, and connections that it did not let in."""
    unknown: list[str] = []
    """Ids of topologies that have workers or files but are not in the store. They are left alone."""


class ForgetUnknown(Wire):
    """Request of an operator: stop and remove what Nimbus does not know. The reply lists it."""

    ids: list[str] = []


class InjectFault(Wire):
    """Request: break something on purpose, now. The reply is `scheduler.faults.in_force.FaultsTold`."""

    line: str
    """A fault's line, as `scheduler.faults.sentence` reads it."""


class HealFaults(Wire):
    """Request: end the faults in force. The reply, FaultsTold, says which were."""

    targets: list[str] = []
    """Only those that were begun with just these targets; none: all."""
