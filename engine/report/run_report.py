"""The run report: exact counts of a topology's work, readable by people and machines.

Guarantees: each attempt of a spout is in exactly one column of the account, and each tuple without a tree in one of
`Untracked`, whichever workers died.

Relies on: readings of all tasks from one moment; `idle` only if nothing was under way at that moment.

Pure. Thread: any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Annotated, Any, NamedTuple, TypedDict

import msgspec

from squall.engine.api.user_metrics import MetricReading, Metrics, summarise
from squall.engine.report.document import Count, strict_json, to_document, with_schema
from squall.engine.report.failure_log import ComponentFailures
from squall.engine.report.metrics import (
    WAIT_COUNTERS,
    WAITS,
    Account,
    Unfinished,
    account_of,
    merge,
    percentile_ms,
    unanswered,
)

FLOW_COUNTERS = _SENT, _DROPPED = ("untracked_sent", "untracked_dropped")
"""Extra counters in the reading of a bolt's task: tuples without a tree that others sent to it, and those of them that
never left their worker."""


class TaskReading(NamedTuple):
    """Counters and latency histogram of one task at one moment."""

    task: int
    component: str
    kind: str
    worker: str
    counters: Mapping[str, int]
    histogram: list[int]
    """Of a spout; of a bolt it may be empty."""
    alive: bool = True
    """True if its worker lives, or has ended in order."""


@dataclass(frozen=True)
class Restart:
    """One death of a worker and its replacement."""

    slot: str
    """node:port"""
    reason: str
    at_secs: float
    """Seconds after the start of the run, or the submission."""
    ready_after_secs: float | None
    """Seconds from the death until the replacement was ready; None if it is not yet."""
    error: str = ""
    """The worker's last words, or its Python stacks if it crashed or hung."""
    rss_bytes: Count = 0
    """Memory of the worker shortly before; 0 if unknown."""
    working_after_secs: float | None = None
    """Seconds from the death until the replacement was seen to emit or execute tuples (checked each millisecond); None
    if it was not yet."""


@dataclass(frozen=True)
class Untracked:
    """Tuples that belong to no tree: they are never emitted again, so each is in exactly one of the other columns."""

    sent: Count = 0
    """The sum of the other four."""
    delivered: Count = 0
    """Executed tuples."""
    dropped: Count = 0
    """Tuples for a worker that died before they were sent, or that could not be sent or read."""
    unprocessed: Count = 0
    """Tuples in queues or on the way when the report was made."""
    unknown: Count = 0
    """Tuples not known to be executed although the topology is drained: they were in a worker that died, which may have
    executed some."""


SpoutOrBolt = Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["spout", "bolt"]})]


@dataclass(frozen=True)
class ComponentReport:
    """Totals of one component over all its tasks."""

    kind: SpoutOrBolt
    tasks: Count
    emitted: Count
    transferred: Count
    executed: Count
    acked: Count
    failed: Count
    """For a spout: as in `Account`, and so are the next four."""
    dead_letters: Count
    waiting: Count
    pending: Count
    abandoned: Count
    tracked: Count
    """For a spout: attempts, which `Account` calls emitted; `emitted` counts all its emits."""
    errors: Count
    in_queue: Count
    execute_ns: Count
    """For a bolt: time that its tasks spent in `execute`."""
    execute_latency_ms: float | None
    """Mean time in `execute` per tuple; None if there was none."""
    capacity: float
    """Share of the run that its tasks spent in `execute`: near 1.0, it is the bottleneck."""
    waits: Mapping[str, float] = field(default_factory=dict)
    """For a spout: the share of the run that its tasks waited, by reason. In the rest, they emitted."""
    untracked: Untracked = field(default_factory=Untracked)
    """For a bolt: the tuples for it that belong to no tree."""
    max_pending: Count | None = None
    """For a spout: how many messages each of its tasks may have open, the mean; None = no limit, or not known yet."""


class Latency(dict[str, float | None]):
    """Percentiles in ms, by key (`latency["p99"]`) or attribute (`latency.p99`); None if nothing was acked."""

    def __getattr__(self, name: str) -> float | None:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


_FRACTIONS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
Percentiles = Annotated[Latency, msgspec.Meta(extra_json_schema={
    "type": "object", "required": [*_FRACTIONS],
    "properties": {key: {"anyOf": [{"type": "number"}, {"type": "null"}]} for key in _FRACTIONS},
})]


@dataclass(frozen=True, kw_only=True)
class Figures(Account):
    """What a topology has done: the figures that a report and a status have in common."""

    duration_secs: float
    """Seconds of the run, up to the report or the end; shares and rates are of these."""
    orphaned: Count
    """Abandoned attempts of spouts whose worker died and has no successor (yet); included in `abandoned`."""
    timed_out: Count
    """Attempts that failed because `message_timeout_secs` had passed."""
    replayed: Count
    """Attempts beyond the first of their messages; included in `emitted`."""
    messages: Count
    """Emitted messages: `emitted` without `replayed`. There may be fewer if a worker died: only its spout knew which
    messages were acked, and its successor may have emitted some of these again."""
    unanswered: Count
    """Messages that are neither acked nor dead letters; 0 if everything is done."""
    unreplayed: Count
    """Messages that failed and were not emitted again; known only when nothing is pending."""
    untracked_emitted: Count
    """Emits of spouts without a message id, or without ackers: they get no answer."""
    untracked: Untracked
    """The fates of tuples that belong to no tree, including those that bolts emitted."""
    latency_ms: Percentiles
    """p50, p90, p99 and max of the time from emit to ack of a message."""
    restarts: list[Restart]
    """The deaths of workers, with their reasons and how long the replacements took."""
    components: Mapping[str, ComponentReport]
    """By component: its totals over all tasks."""
    metrics: Metrics
    """The components' own metrics: see `engine.api.user_metrics`."""
    drained: bool
    """True if all spouts were exhausted and nothing was pending when the report was made."""
    failures: Mapping[str, ComponentFailures]
    """By component: number of failed messages by reason, and the last failures."""
    close_errors: list[str]
    """Errors that tasks raised in `close` and `cleanup`: one line each, with component, task and method."""
    links: Mapping[str, Count]
    """Frames between workers: lost, repeated, refused (damaged or of a dead sender); and reconnects to replaced
    workers."""
    late: Count
    """Tuples that were late for windows: the sum of the counters "late tuples"."""
    late_dropped: Count
    """Those of them that no late stream took: the sum of the counters "dropped late tuples"."""
    ahead: Count
    """Tuples too far ahead of the clock to move event time: the sum of the counters "ahead tuples"."""


class WorkerCounts(TypedDict):
    """Counts of the tasks that now run in a worker."""

    emitted: Count
    executed: Count
    in_queue: Count


@dataclass(frozen=True, kw_only=True)
class RunReport(Figures):
    """Everything about a run. The account counts attempts (emits of spouts with a message id), not tuples.

    At rest and at the end, `emitted = acked + failed + dead_letters + waiting + pending + abandoned`: see
    docs/guarantees.md.
    """

    topology: str
    """Name of the topology."""
    workers: Mapping[str, WorkerCounts]
    """By node:port."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dict of the types that JSON knows."""
        return to_document(self)

    def to_json(self) -> str:
        """Return the report as one JSON document (docs/schemas/run.json). NaN and infinity become null."""
        return strict_json(with_schema("run", self))


def build_report(
    topology: str, readings: Iterable[TaskReading], duration_secs: float, restarts: list[Restart], drained: bool,
    metrics: Iterable[MetricReading] = (), idle: bool = False,
) -> RunReport:
    """Sum up task readings, which know nothing of failures' texts, links and errors at the end: who does adds them.
    `idle`: nothing was under way in or between workers when they were made."""
    readings = list(readings)
    spouts = [reading for reading in readings if reading.kind == "spout"]

    def total(name: str) -> int:
        return sum(reading.counters[name] for reading in spouts)

    account = total_account(spouts)
    by_component: dict[str, list[TaskReading]] = {}
    workers: dict[str, WorkerCounts] = {}
    for reading in readings:
        by_component.setdefault(reading.component, []).append(reading)
        row = workers.setdefault(reading.worker, {"emitted": 0, "executed": 0, "in_queue": 0})
        row["emitted"] += reading.counters["emitted"]
        row["executed"] += reading.counters["executed"]
        row["in_queue"] += reading.counters["in_queue"]
    components = {name: _component(tasks, duration_secs, idle) for name, tasks in by_component.items()}
    own = summarise(metrics)
    return RunReport(
        **vars(account),
        topology=topology,
        duration_secs=round(duration_secs, 6),
        orphaned=account.abandoned - total("abandoned"),
        timed_out=total("timed_out"),
        replayed=total("replayed"),
        messages=account.emitted - total("replayed"),
        unanswered=sum(unanswered(spout.counters) for spout in spouts),
        unreplayed=total("unreplayed"),
        untracked_emitted=total("emitted") - account.emitted,
        untracked=_untracked(readings, idle),
        latency_ms=latency_of(merge(reading.histogram for reading in spouts)),
        restarts=restarts,
        components=components,
        workers=workers,
        metrics=own,
        drained=drained,
        failures={},
        links={},
        close_errors=[],
        late=_counted(own, "late tuples"),
        late_dropped=_counted(own, "dropped late tuples"),
        ahead=_counted(own, "ahead tuples"),
    )


def _counted(metrics: Metrics, name: str) -> int:
    """The sum of all components' counters of this name."""
    return sum(value for own in metrics.values() if isinstance(value := own.get(name), int))


_EMPTY = Account(0, 0, 0, 0, 0, 0, 0)


def total_account(spouts: Sequence[TaskReading]) -> Account:
    """The account of several spout tasks together."""
    accounts = [account_of(spout.counters, spout.alive) for spout in spouts]
    columns = zip(*(vars(account).values() for account in accounts), strict=True)
    return Account(*map(sum, columns)) if spouts else _EMPTY


def unfinished(readings: Iterable[TaskReading]) -> Unfinished:
    """Count unfinished messages and tuples; attempts left open by spouts whose worker died count as pending."""
    readings = list(readings)
    spouts = [reading for reading in readings if reading.kind == "spout"]
    account = total_account(spouts)
    orphaned = account.abandoned - sum(spout.counters["abandoned"] for spout in spouts)
    return Unfinished(account.pending + orphaned, account.waiting, _untracked(readings, idle=False).unprocessed)


def latency_of(histogram: list[int]) -> Latency:
    """p50, p90, p99 and max of a histogram; None for each if it is empty."""
    seen = any(histogram)
    return Latency({
        name: round(percentile_ms(histogram, fraction), 3) if seen else None for name, fraction in _FRACTIONS.items()
    })


def _untracked(tasks: Iterable[TaskReading], idle: bool) -> Untracked:
    sent = dropped = delivered = left = 0
    for task in tasks:
        counters = task.counters
        to_task, before, executed = counters.get(_SENT, 0), counters.get(_DROPPED, 0), counters["untracked_executed"]
        sent, dropped, delivered = sent + to_task, dropped + before, delivered + executed
        left += max(0, to_task - before - executed)
    return Untracked(sent, delivered, dropped, 0 if idle else left, left if idle else 0)


def _waits(tasks: list[TaskReading], duration_secs: float) -> dict[str, float]:
    """Shares of the run spent waiting, by reason; empty for a run that took no time."""
    if tasks[0].kind != "spout" or not duration_secs:
        return {}
    whole_ns = duration_secs * 1e9 * len(tasks)
    return {
        reason: round(min(1.0, sum(task.counters[name] for task in tasks) / whole_ns), 4)
        for reason, name in zip(WAITS, WAIT_COUNTERS, strict=True)
    }


def _component(tasks: list[TaskReading], duration_secs: float, idle: bool) -> ComponentReport:
    counters = [task.counters for task in tasks]

    def total(name: str) -> int:
        return sum(map(itemgetter(name), counters))

    executed, busy_ns, is_spout = total("executed"), total("execute_ns"), tasks[0].kind == "spout"
    account = total_account(tasks) if is_spout else _EMPTY
    return ComponentReport(
        kind=tasks[0].kind,
        tasks=len(tasks),
        emitted=total("emitted"),
        transferred=total("transferred"),
        executed=executed,
        acked=total("acked"),
        failed=account.failed if is_spout else total("failed"),
        dead_letters=account.dead_letters,
        waiting=account.waiting,
        pending=account.pending,
        abandoned=account.abandoned,
        tracked=account.emitted,
        errors=total("errors"),
        in_queue=total("in_queue"),
        execute_ns=busy_ns,
        execute_latency_ms=round(busy_ns / executed / 1e6, 6) if executed else None,
        capacity=round(busy_ns / 1e9 / duration_secs / len(tasks), 4) if duration_secs else 0.0,
        waits=_waits(tasks, duration_secs),
        untracked=_untracked(tasks, idle),
        max_pending=round(total("limit") / len(tasks)) or None,
    )
