"""The run report: what a topology did, exact counts, readable by people and machines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.failure_log import ComponentFailures
from engine.metrics import merge, percentile_ms
from engine.user_metrics import MetricReading, Metrics, summarise


@dataclass(frozen=True)
class TaskReading:
    """Counters and latency histogram of one task, read at one moment."""

    task: int
    component: str
    kind: str
    worker: str
    counters: Mapping[str, int]
    histogram: list[int]


@dataclass(frozen=True)
class Restart:
    """One death of a worker and its replacement."""

    slot: str
    reason: str
    at_secs: float
    """Seconds after the run began."""
    ready_after_secs: float | None
    """Seconds from the death to the replacement being ready; None if it was not yet."""
    error: str = ""
    """What it said before, or its Python stacks where it crashed or hung."""
    rss_bytes: int = 0
    """Memory it occupied shortly before; 0 if unknown."""
    working_after_secs: float | None = None
    """Seconds from the death to the replacement being seen to emit or execute tuples (it looks once in a millisecond);
    None if it was not yet."""


@dataclass(frozen=True)
class ComponentReport:
    """Totals of one component over all its tasks."""

    kind: str
    tasks: int
    emitted: int
    transferred: int
    executed: int
    acked: int
    failed: int
    errors: int
    execute_latency_ms: float
    """Mean time in `execute` per tuple."""
    capacity: float
    """Share of the run its tasks spent in `execute`: near 1.0 it is the bottleneck."""


class Latency(dict[str, float]):
    """Percentiles in milliseconds, by key (`latency["p99"]`) or attribute (`latency.p99`)."""

    @property
    def p50(self) -> float:
        return self["p50"]

    @property
    def p90(self) -> float:
        return self["p90"]

    @property
    def p99(self) -> float:
        return self["p99"]

    @property
    def max(self) -> float:
        return self["max"]


@dataclass(frozen=True)
class RunReport:
    """Everything about a run. The first counts are those of the spouts: messages, not tuples."""

    topology: str
    duration_secs: float
    emitted: int
    acked: int
    failed: int
    timed_out: int
    replayed: int
    pending: int
    dead_letters: int
    latency_ms: Latency
    """p50, p90, p99, max: from emit to ack of a message."""
    restarts: list[Restart]
    components: Mapping[str, ComponentReport]
    workers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Per worker: emitted, executed and in_queue of the tasks that live there now."""
    metrics: Metrics = field(default_factory=dict)
    """What the components measured themselves: see `engine.user_metrics`."""
    drained: bool = False
    """All spouts were exhausted and nothing was pending when the report was made."""
    failures: Mapping[str, ComponentFailures] = field(default_factory=dict)
    """By component: how many messages failed for which reason, and the last of them."""
    links: Mapping[str, int] = field(default_factory=dict)
    """Frames between workers: lost, repeated, refused (damaged or of a dead sender); and reconnects to replaced
    workers."""

    def to_dict(self) -> dict[str, object]:
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """One JSON document."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True)


def build_report(
    topology: str, readings: Iterable[TaskReading], duration_secs: float, restarts: list[Restart], drained: bool,
    failures: Mapping[str, ComponentFailures] | None = None, links: Mapping[str, int] | None = None,
    metrics: Iterable[MetricReading] = (),
) -> RunReport:
    """Sum up task readings."""
    readings = list(readings)
    spouts = [reading for reading in readings if reading.kind == "spout"]

    def total(name: str) -> int:
        return sum(reading.counters[name] for reading in spouts)

    histogram = merge(reading.histogram for reading in spouts)
    latency = Latency({f"p{percent}": round(percentile_ms(histogram, percent / 100), 3) for percent in (50, 90, 99)})
    latency["max"] = round(percentile_ms(histogram, 1.0), 3)
    components: dict[str, list[TaskReading]] = {}
    workers: dict[str, dict[str, int]] = {}
    for reading in readings:
        components.setdefault(reading.component, []).append(reading)
        row = workers.setdefault(reading.worker, {"emitted": 0, "executed": 0, "in_queue": 0})
        for name in row:
            row[name] += reading.counters[name]
    return RunReport(
        topology=topology,
        duration_secs=round(duration_secs, 6),
        emitted=total("emitted"),
        acked=total("acked"),
        failed=total("failed"),
        timed_out=total("timed_out"),
        replayed=total("replayed"),
        pending=total("pending"),
        dead_letters=total("dead_letters"),
        latency_ms=latency,
        restarts=restarts,
        components={name: _component(tasks, duration_secs) for name, tasks in components.items()},
        workers=workers,
        metrics=summarise(metrics),
        drained=drained,
        failures=failures or {},
        links=links or {},
    )


def _component(tasks: list[TaskReading], duration_secs: float) -> ComponentReport:
    def total(name: str) -> int:
        return sum(task.counters[name] for task in tasks)

    executed, busy_ns = total("executed"), total("execute_ns")
    return ComponentReport(
        kind=tasks[0].kind,
        tasks=len(tasks),
        emitted=total("emitted"),
        transferred=total("transferred"),
        executed=executed,
        acked=total("acked"),
        failed=total("failed"),
        errors=total("errors"),
        execute_latency_ms=round(busy_ns / executed / 1e6, 6) if executed else 0.0,
        capacity=round(busy_ns / 1e9 / duration_secs / len(tasks), 4) if duration_secs else 0.0,
    )
