"""What the rings of `history` show: points of charts, and marks of what happened beside them; what components did
between two looks. Thread: any."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from squall.engine.report.metrics import bucket_bounds, percentile_ms
from squall.ipc.rundir import RunDir
from squall.scheduler.client.statuses import Status
from squall.scheduler.common.daemon import read_deaths
from squall.scheduler.faults.in_force import BEGIN, END, read_record
from squall.ui.history import ComponentCounts, Moment
from squall.ui.sampler import ComponentRates, Sample

_GAP_STEPS, _GAP_SECS = 3, 10.0
"""Rows this far apart have a gap between them: a topology of 10,000 tasks is looked at every few seconds."""
_RATED = ("executed", "emitted", "acked", "failed")


class WindowCounts(Struct):
    """What a component did in a window."""

    over_secs: float
    emitted: int
    transferred: int
    executed: int
    acked: int
    failed: int
    execute_ms: float
    complete_ms: float
    capacity: float


class Point(Struct):
    """A topology at a moment. Empty values are a gap, in which nobody looked."""

    at_unix_secs: float
    emitted_per_sec: float | None
    acked_per_sec: float | None
    failed_per_sec: float | None
    pending: int | None
    p50_ms: float | None
    p99_ms: float | None


class Mark(Struct):
    """Something that happened."""

    at_unix_secs: float
    kind: str
    text: str


class HistoryDocument(Struct):
    """Rates, pending messages and latencies, and what happened meanwhile."""

    step_secs: int
    points: list[Point]
    marks: list[Mark]


def points_of(rows: Sequence[Moment], step_secs: int) -> list[Point]:
    """A point for each row but the first: what happened since the one before."""
    points: list[Point] = []
    for (before, was), (row, now) in itertools.pairwise((row, row.messages()) for row in rows):
        secs = row.at_unix_secs - before.at_unix_secs
        if secs > max(_GAP_STEPS * step_secs, _GAP_SECS):
            points.append(Point(before.at_unix_secs + step_secs, *[None] * 6))
            continue
        done = now.since(was)
        histogram = done.histogram()
        p50, p99 = (round(percentile_ms(histogram, part), 3) if done.latencies else None for part in (0.5, 0.99))
        emitted, acked, failed = (round(count / secs, 1) for count in (done.emitted, done.acked, done.failed))
        points.append(Point(round(row.at_unix_secs, 3), emitted, acked, failed, row.pending, p50, p99))
    return points


def windowed(over_secs: float, done: ComponentCounts, tasks: int) -> WindowCounts:
    """What a component did in a window, with means: the time in `execute`, and from emit to ack."""
    messages = sum(done.latencies.values())
    micros = sum(count * sum(bucket_bounds(bucket)) / 2 for bucket, count in done.latencies.items())
    return WindowCounts(
        round(over_secs, 1), done.emitted, done.transferred, done.executed, done.acked, done.failed,
        execute_ms=done.execute_ns / 1e6 / max(1, done.executed), complete_ms=micros / 1e3 / max(1, messages),
        capacity=done.execute_ns / 1e9 / max(over_secs, 1e-3) / tasks,
    )


def component_rates(before: Status, now: Status, secs: float) -> dict[str, ComponentRates]:
    """Return the rates of each component of `now` in the `secs` seconds between two looks."""
    return {
        name: rates_of(vars(before.components.get(name, component)), vars(component), secs)
        for name, component in now.components.items()
    }


def rates_of(before: Mapping[str, Any], now: Mapping[str, Any], secs: float) -> ComponentRates:
    """Return rates, the mean time in `execute` and the capacity between two counts of a component, or of a task; 0 for
    what did not happen, or fell because tasks have moved."""
    secs = max(secs, 1e-3)
    executed, busy_ns = (max(0, now[key] - before[key]) for key in ("executed", "execute_ns"))
    return ComponentRates(
        **{f"{key}_per_sec": max(0, now[key] - before[key]) / secs for key in _RATED},
        execute_latency_ms=busy_ns / executed / 1e6 if executed else 0.0,
        capacity=busy_ns / 1e9 / secs / now.get("tasks", 1),
    )


def marks_of(run_dir: RunDir, sample: Sample, rows: Sequence[Moment], since_unix_secs: float) -> list[Mark]:
    """Deaths of workers and daemons, faults that began and ended, and moves, oldest first."""
    marks = [*_deaths(run_dir, sample), *_faults(run_dir, sample), *_moves(rows)]
    recent = [mark for mark in marks if since_unix_secs <= mark.at_unix_secs <= sample.at_unix_secs]
    return sorted(recent, key=lambda mark: mark.at_unix_secs)


def _mark(at_unix_secs: float, kind: str, text: str) -> Mark:
    return Mark(round(at_unix_secs, 3), kind, text)


def _deaths(run_dir: RunDir, sample: Sample) -> Iterator[Mark]:
    began_unix_secs = sample.at_unix_secs - sample.status.duration_secs
    for death in sample.status.restarts:
        yield _mark(began_unix_secs + death.at_secs, "worker died", f"{death.slot}: {death.reason}")
    for daemon in read_deaths(run_dir):
        yield _mark(daemon.at_unix_secs, "daemon died", f"{daemon.daemon}: {daemon.reason}")


def _faults(run_dir: RunDir, sample: Sample) -> Iterator[Mark]:
    # The record has the monotonic clock; one of an earlier boot may fall anywhere, mostly outside the window.
    boot_unix_secs = sample.at_unix_secs - sample.at_monotonic_secs
    begun: dict[int, str] = {}
    for event in read_record(run_dir):
        at_unix_secs = boot_unix_secs + event["at_secs"]
        # That of another topology's tasks is not shown here.
        if event["event"] == BEGIN and event["topology_id"] in ("", sample.status.id):
            params = [
                f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                for name, value in event["params"].items()
            ]
            lasts_secs = event["ends_secs"] - event["at_secs"]
            text = " ".join([event["kind"], *event["targets"], *params, *[f"for {lasts_secs:g} s"] * (lasts_secs > 0)])
            begun[event["id"]] = text
            yield _mark(at_unix_secs, "fault began", text)
        elif event["event"] == END and event["id"] in begun:
            yield _mark(at_unix_secs, "fault ended", begun[event["id"]] + (", healed" if event["healed"] else ""))


def _moves(rows: Sequence[Moment]) -> Iterator[Mark]:
    for before, row in itertools.pairwise(rows):
        if before.version != row.version:
            yield _mark(row.at_unix_secs, "moved", f"to other workers (assignment {row.version})")
