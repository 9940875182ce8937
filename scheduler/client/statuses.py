"""What is told of a cluster and its topologies: the types of the documents that `scheduler.client.described` makes.

Guarantees: the JSON Schemas in docs/schemas and the OpenAPI description of the REST API are made from these classes and
from `engine.report.run_report`; the text below a field is its description there. Sizes are bytes, times in seconds,
milliseconds or nanoseconds as their names say.

Thread: any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta, Struct

from squall.engine.report.document import Count
from squall.engine.report.run_report import ComponentReport, Figures
from squall.ipc.board import STATE_NAMES
from squall.scheduler.common.daemon import DaemonDeath
from squall.scheduler.common.messages import InputSummary
from squall.scheduler.common.role import RoleKind

FAILED = "FAILED"
"""State of a worker whose slot was given up."""
OTHER = "other"
"""Role of a process that users' code has started."""


class FaultShown(Struct):
    """A fault in force."""

    id: Count
    kind: str
    targets: list[str]
    hits: str
    """Who it hits, for people."""
    left_secs: float
    params: dict[str, Any]
    probability: float | None


class SuccessorShown(Struct):
    """The topology that takes another one's place."""

    id: str
    status: str
    """ACTIVE or INACTIVE, when it begins."""
    workers_wanted: Count
    fresh: bool
    """Whether it begins without the state kept."""


class Rates(Struct):
    """Counts by second, between two looks."""

    over_secs: float
    emitted_per_sec: float
    acked_per_sec: float
    executed_per_sec: float


class StandingTime(Struct):
    """Where event time stands in a bolt."""

    at: str | None
    """Windows that end here or before are executed: ISO 8601, UTC; null if it has not begun."""
    secs: Annotated[float, Meta(ge=0)]
    """For how long it has stood there, as far as its worker knows."""
    spout: str
    """What it waits for; empty if for nothing but a newer record."""
    partition: str
    """What the message ids of the partition begin with; empty if it has no name."""
    task: int | None
    """Of that spout, which reads the partition; null if none does."""


class Output(Struct):
    """A stream that a component emits."""

    fields: list[str]
    emitted: Count


@dataclass(frozen=True, kw_only=True)
class ComponentStatus(ComponentReport):
    """A component, its figures and its place in the topology."""

    executors: Count
    tasks_fixed: Count
    """Tasks, as submitted; the number never changes."""
    inputs: list[InputSummary]
    """The streams that it reads, each with its grouping and, for a fields grouping, its fields."""
    outputs: dict[str, Output]
    """By stream that it emits: its fields, and how many tuples were emitted on it."""


class ExecutorShown(Struct):
    """An executor: some tasks of a component, in one worker."""

    component: str
    """Ackers are __acker."""
    tasks: Annotated[list[Count], Meta(min_length=2, max_length=2)]
    """First and last."""
    worker: str


class OpeningTask(Struct):
    """A task that a worker is opening."""

    component: str
    task: Count
    method: str
    """open, prepare or setup."""
    secs: float
    """For how long it has been in it."""


class WorkerShown(Struct):
    """A worker."""

    worker: str
    """node:port"""
    pid: Count
    incarnation: Count
    state: Annotated[str, Meta(extra_json_schema={"enum": [*STATE_NAMES.values(), FAILED]})]
    uptime_secs: float | None
    """null: it is dead."""
    restarts: Count
    """Deaths in this slot that are on record. An incarnation also begins without one: when the topology moves, or its
    cluster is started again."""
    executors: Count
    opening: OpeningTask | None
    """The task that it is opening; null if there is none."""
    held_bytes: Count
    """Bytes in its queues."""


class WorkerError(Struct):
    """The last words of a worker."""

    worker: str
    incarnation: Count
    reason: str
    error: str


class WorkerDeath(WorkerError):
    """The last of equal deaths of workers."""

    times: Annotated[int, Meta(ge=1)]
    """Deaths for this reason: by errors of the same component, type and line, or else of this worker."""
    workers: Annotated[int, Meta(ge=1)]
    """Workers that died so."""
    first_secs: float
    """When the first of them was, after the topology was submitted."""
    last_secs: float
    rss_bytes: Count


@dataclass(frozen=True, kw_only=True)
class Status(Figures):
    """All that is known of a topology."""

    name: str
    id: str
    status: str
    """ACTIVE, INACTIVE, REBALANCING, KILLED, STOPPED (see why_stopped), or FINISHED: active, exhausted, and nothing
    pending."""
    replaced_by: SuccessorShown | None
    """What takes its place when it has drained; null if nothing does."""
    uptime_secs: float
    cwd: str
    """Working directory of its workers."""
    env: list[str]
    """Names of variables of its workers; values are never shown."""
    workers_wanted: Count
    rates: Rates
    event_time: dict[str, StandingTime]
    """Bolt with windows by event time -> where event time stands."""
    components: Mapping[str, ComponentStatus]
    """By name."""
    executors: list[ExecutorShown]
    workers: list[WorkerShown]
    """Empty while the topology waits for a slot."""
    restarts_total: Count
    """Deaths since it was submitted."""
    given_up: list[str]
    """Slots that it will not use before squall reset."""
    why_stopped: str
    """The error by which it is STOPPED; empty if there is none."""
    deaths: list[WorkerDeath]
    """The last ten."""
    errors: list[WorkerError]
    """The last ten."""
    faults: list[FaultShown]
    """Faults in force."""


class ClusterStatus(Struct):
    """A cluster: nodes, slots, topologies, deaths of daemons, faults."""

    dir: str
    nodes: dict[str, list[str]]
    """Slots (node:port) by node."""
    gone: list[str]
    """Nodes whose supervisor is silent."""
    leaving: list[str]
    """Nodes whose supervisor was told to end, and that get no more work."""
    free_slots: list[str]
    topologies: dict[str, str]
    """Status by name."""
    replaced_by: dict[str, str]
    """Id of the topology that takes its place, by name."""
    keeper_gone: bool
    """Whether its keeper has died, so that nobody starts daemons again."""
    daemon_deaths: list[DaemonDeath]
    """The newest deaths of daemons that have a keeper, and of keepers, oldest first."""
    refused_frames: Count
    unknown: list[str]
    """Ids of topologies that run, and that the store does not know."""
    faults: list[FaultShown]
    """Faults in force."""


class ListedTopology(Struct):
    """A topology in `squall list`."""

    name: str
    id: str
    status: str
    """ACTIVE, INACTIVE, REBALANCING, KILLED, STOPPED: errors keep it from its work; or FINISHED: active, exhausted, and
    nothing pending."""
    replaced_by: str | None
    """Id of the topology that takes its place when it has drained."""
    tasks: Count
    executors: Count
    workers: Count
    """Slots that it has."""
    workers_ready: Count
    """Those that run, with their tasks opened."""
    workers_wanted: Count
    restarts: Count
    """Deaths of its workers since it was submitted."""
    uptime_secs: float


class TopologyList(Struct):
    """What `squall list` shows."""

    topologies: list[ListedTopology]


class ProcessShown(Struct):
    """A process of a cluster."""

    role: Annotated[str, Meta(extra_json_schema={"enum": [*RoleKind, OTHER]})]
    """other: started by code of users."""
    node: str | None
    port: Count | None
    """Of a worker."""
    topology: str | None
    """Of a worker, or of a spare that has loaded its code; the end of a very long name may be missing."""
    pid: Count
    parent_pid: Count
    uptime_secs: float
    rss_bytes: Count
    """Resident memory."""
    command: str
    """Its title, or its command line."""


class ProcessList(Struct):
    """What `squall ps` shows."""

    dir: str
    processes: list[ProcessShown]
