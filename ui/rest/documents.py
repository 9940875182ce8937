"""The documents of Squall's own REST API, of which FastAPI makes its OpenAPI description.

Guarantees: what is named here is there, of this type. A newer Squall may add keys, never change one. Sizes are bytes,
times in seconds or milliseconds as their names say.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Document(BaseModel):
    """A JSON object, which may have more keys than are named."""

    model_config = ConfigDict(extra="allow")


class RefusalDocument(Document):
    """Why nothing was done."""

    error: str


class Status(Document):
    """The status of a topology after an order."""

    status: str


class FaultDocument(Document):
    """A fault in force, or one that was begun or ended."""

    id: int
    kind: str
    targets: list[str]
    params: dict[str, Any]
    probability: float | None


class DaemonDeath(Document):
    daemon: str
    reason: str
    error: str
    at_unix_secs: float


class ClusterDocument(Document):
    dir: str
    nodes: dict[str, list[str]]
    """Node -> its slots."""
    gone: list[str]
    leaving: list[str]
    free_slots: list[str]
    topologies: dict[str, str]
    """Name -> status."""
    replaced_by: dict[str, str]
    keeper_gone: bool
    daemon_deaths: list[DaemonDeath]
    refused_frames: int
    unknown: list[str]
    faults: list[FaultDocument]
    away: str
    """Why Nimbus does not answer; empty if it does."""
    age_secs: float


class LatencyDocument(Document):
    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None


class Rates(Document):
    over_secs: float
    emitted_per_sec: float
    acked_per_sec: float
    executed_per_sec: float


class TopologyRow(Document):
    name: str
    id: str
    status: str
    uptime_secs: float
    workers_wanted: int
    workers_ready: int
    tasks: int
    executors: int
    restarts_total: int
    acked: int
    failed: int
    pending: int
    dead_letters: int
    rates: Rates
    latency_ms: LatencyDocument
    recent_latency_ms: LatencyDocument


class Input(Document):
    component: str
    stream: str
    grouping: str
    fields: list[str]


class Output(Document):
    fields: list[str]
    emitted: int


class ComponentDocument(Document):
    kind: str
    tasks: int
    executors: int
    emitted: int
    transferred: int
    executed: int
    acked: int
    failed: int
    dead_letters: int
    waiting: int
    pending: int
    errors: int
    in_queue: int
    execute_ns: int
    execute_latency_ms: float | None
    capacity: float
    inputs: list[Input]
    outputs: dict[str, Output]


class ComponentRates(Document):
    executed_per_sec: float
    emitted_per_sec: float
    acked_per_sec: float
    failed_per_sec: float
    execute_latency_ms: float
    capacity: float


class WorkerDocument(Document):
    worker: str
    pid: int
    incarnation: int
    state: str
    uptime_secs: float | None
    restarts: int
    executors: int
    held_bytes: int


class ExecutorDocument(Document):
    component: str
    tasks: list[int] = Field(min_length=2, max_length=2)
    """The first and the last."""
    worker: str


class DeathDocument(Document):
    worker: str
    incarnation: int
    times: int
    reason: str
    rss_bytes: int
    error: str


class WorkerError(Document):
    worker: str
    incarnation: int
    reason: str
    error: str


class FailuresOfComponent(Document):
    counts: dict[str, int]
    """Reason -> failed messages."""
    last: list[dict[str, Any]]


class TopologyDocument(Document):
    """What `squall status NAME --json` shows, and what was since the look before: rates of components in `recent`,
    latencies in `recent_latency_ms`."""

    name: str
    id: str
    status: str
    at_unix_secs: float
    uptime_secs: float
    workers_wanted: int
    drained: bool
    emitted: int
    acked: int
    failed: int
    pending: int
    waiting: int
    dead_letters: int
    rates: Rates
    latency_ms: LatencyDocument
    recent_latency_ms: LatencyDocument
    components: dict[str, ComponentDocument]
    executors: list[ExecutorDocument]
    workers: list[WorkerDocument]
    restarts_total: int
    deaths: list[DeathDocument]
    errors: list[WorkerError]
    failures: dict[str, FailuresOfComponent]
    metrics: dict[str, dict[str, Any]]
    faults: list[FaultDocument]
    recent: dict[str, ComponentRates]


class WindowDocument(Document):
    over_secs: float
    emitted: int
    transferred: int
    executed: int
    acked: int
    failed: int
    execute_ms: float
    complete_ms: float
    capacity: float


class TaskDocument(Document):
    task: int
    component: str
    kind: str
    worker: str
    counters: dict[str, int]


class OneComponent(Document):
    name: str
    component: ComponentDocument
    recent: ComponentRates
    windows: dict[str, WindowDocument]
    """ "600", "10800", "86400" and ":all-time"."""
    tasks: list[TaskDocument]
    executors: list[ExecutorDocument]


class Errors(Document):
    stopped: str
    """The fault of its set-up at which the topology has stopped."""
    deaths: list[DeathDocument]
    errors: list[WorkerError]
    failures: dict[str, FailuresOfComponent]
    close_errors: list[str]


class Point(Document):
    """Empty values are a gap, in which nobody looked."""

    at_unix_secs: float
    emitted_per_sec: float | None
    acked_per_sec: float | None
    failed_per_sec: float | None
    pending: int | None
    p50_ms: float | None
    p99_ms: float | None


class Mark(Document):
    at_unix_secs: float
    kind: str
    text: str


class HistoryDocument(Document):
    step_secs: int
    points: list[Point]
    marks: list[Mark]


class LetterDocument(Document):
    id: str
    at: str
    spout: str
    message_id: str
    values: str
    reason: str
    component: str
    task: int
    worker: str
    error: str
    attempt: int
    why_no_payload: str


class LogLine(Document):
    worker: str
    line: str


class FaultKindDocument(Document):
    """A kind of fault that can be injected."""

    name: str
    group: str
    meaning: str
    acts_on: str
    example: str


class OrderBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RebalanceOrder(OrderBody):
    workers: int | None = Field(None, ge=1, le=1024)
    executors: dict[str, int] = {}
    wait_secs: float | None = Field(None, ge=0, le=86400)


class KillOrder(OrderBody):
    wait_secs: float | None = Field(None, ge=0, le=86400)


class ReplayOrder(OrderBody):
    ids: list[str] = []
    """None: all that can be."""


class InjectOrder(OrderBody):
    line: str
    """As in `squall inject LINE`."""


class HealOrder(OrderBody):
    targets: list[str] = []
    """None: all faults in force."""


class TraceOrder(OrderBody):
    """Either an id or a share."""

    message_id: str = ""
    sample: float = Field(default=0.0, ge=0.0, le=1.0)
    secs: float = Field(default=10.0, gt=0.0, le=3600.0)


class TracedHop(Document):
    """Tuples of a message that one task sent to another; None for what was not seen."""

    from_: str = Field(alias="from")
    from_task: int
    stream: str
    to: str
    to_task: int
    tuples: int
    parent: int | None
    """Index of the hop in whose execution they were emitted; null: by the spout."""
    failed: bool
    began_ms: float
    """After the emit of the message."""
    transport_ms: float | None
    queue_ms: float | None
    execute_ms: float | None


class TracedAttempt(Document):
    outcome: str
    """acked, failed or open."""
    took_ms: float | None
    failure: dict[str, Any] | None
    hops: list[TracedHop]


class TracedMessage(Document):
    message_id: str
    values: str
    spout: str
    task: int
    attempts: list[TracedAttempt]


class TraceDocument(Document):
    id: str
    topology: str
    ended: bool
    messages: list[TracedMessage]


class TapOrder(OrderBody):
    component: str
    secs: float = Field(default=60.0, gt=0.0, le=3600.0)


class TappedTuple(Document):
    component: str
    task: int
    stream: str
    values: str
    how: str
    """emitted or executed."""


class TapDocument(Document):
    id: str
    topology: str
    ended: bool
    tuples: list[TappedTuple]


class ProfileOrder(OrderBody):
    worker: str
    secs: float = Field(default=10.0, gt=0.0, le=300.0)


class ProfileDocument(Document):
    id: str
    topology: str
    worker: str
