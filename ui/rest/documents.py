"""The documents of Squall's own REST API, beside those of `scheduler.client.statuses`, and the orders that it takes.

Guarantees: what is named here is there, of this type. A newer Squall may add keys, never change one. Sizes are bytes,
times in seconds or milliseconds as their names say.

Thread: any.
"""

from __future__ import annotations

from typing import Any, TypedDict

from pydantic import BaseModel, ConfigDict, Field

from squall.engine.report.failure_log import ComponentFailures
from squall.scheduler.client.statuses import ComponentStatus, ExecutorShown, WorkerDeath, WorkerError
from squall.ui.charts import WindowCounts
from squall.ui.sampler import ComponentRates

LINES = 1000
"""Most lines of logs in one answer."""


class RefusalDocument(TypedDict):
    """Why nothing was done."""

    error: str


class StatusAfter(TypedDict):
    """The status of a topology after an order."""

    status: str


class TaskCounts(TypedDict):
    """The counters of a task."""

    task: int
    component: str
    kind: str
    worker: str
    counters: dict[str, int]
    alive: bool


class OneComponent(TypedDict):
    """A component, its tasks, and what it did in Storm's windows."""

    name: str
    component: ComponentStatus
    recent: ComponentRates
    windows: dict[str, WindowCounts]
    """ "600", "10800", "86400" and ":all-time"."""
    tasks: list[TaskCounts]
    executors: list[ExecutorShown]


class Errors(TypedDict):
    """What went wrong in a topology."""

    stopped: str
    """The fault of its set-up at which the topology has stopped."""
    deaths: list[WorkerDeath]
    errors: list[WorkerError]
    failures: dict[str, ComponentFailures]
    close_errors: list[str]


class LogLine(TypedDict):
    """A line of a worker's log."""

    worker: str
    line: str


TracedHop = TypedDict("TracedHop", {
    "from": str, "from_task": int, "stream": str, "to": str, "to_task": int, "tuples": int, "together": int,
    "parent": int | None, "failed": bool, "began_ms": float, "transport_ms": float | None, "queue_ms": float | None,
    "execute_ms": float | None,
})
"""Tuples of a message that one task sent to another; null for what was not seen. `parent`: index of the hop in whose
execution they were emitted; null: by the spout. `began_ms`: after the emit of the message."""


class TracedAttempt(TypedDict):
    """An emit of a message, and what came of it."""

    root: str
    outcome: str
    """acked, failed or open."""
    began_ms: float
    took_ms: float | None
    failure: dict[str, Any] | None
    hops: list[TracedHop]


class TracedMessage(TypedDict):
    """A message with its attempts."""

    message_id: str
    values: str
    spout: str
    task: int
    attempts: list[TracedAttempt]


class TraceDocument(TypedDict):
    """The ways of the messages that a trace has followed."""

    id: str
    topology: str
    ended: bool
    messages: list[TracedMessage]


class TappedTuple(TypedDict):
    """A tuple that passed."""

    component: str
    task: int
    stream: str
    values: str
    how: str
    """emitted or executed."""


class TapDocument(TypedDict):
    """The tuples that a tap has shown."""

    id: str
    topology: str
    ended: bool
    tuples: list[TappedTuple]


class ProfileDocument(TypedDict):
    """A flame graph that was drawn."""

    id: str
    topology: str
    worker: str


class HistoryQuestion(BaseModel):
    window_secs: float = Field(3600.0, ge=1, le=86400)
    points: int = Field(300, ge=1, le=3600)


class LogsQuestion(BaseModel):
    worker: str = Field("", description="NODE:PORT; none: all workers")
    search: str = Field("", description="text that a line holds")
    limit: int = Field(LINES, ge=1, le=LINES)


class OrderBody(BaseModel):
    """What an order may say, and nothing else."""

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


class TapOrder(OrderBody):
    component: str
    secs: float = Field(default=60.0, gt=0.0, le=3600.0)


class ProfileOrder(OrderBody):
    worker: str
    secs: float = Field(default=10.0, gt=0.0, le=300.0)
