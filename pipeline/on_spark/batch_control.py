"""Decides what follows from a batch: whether it counts, and what the next one is told.

Guarantees: a batch counts only if each of its rows comes from one execution of its worker, and every worker heard all
of the executions that count. A batch in which code raised (with on_error="crash") is undone for the bolts, and its
messages fail. Pure: no file, no Spark, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from squall.engine.api.user_metrics import MetricReading
from squall.engine.report.failure_log import Failures, merge_failures
from squall.engine.report.run_report import Restart, RunReport, TaskReading, build_report
from squall.pipeline.on_spark.host import HostTurn, WorkerReport
from squall.pipeline.on_spark.layout import Layout

#: Messages of each spout task in the first batch, and at least.
FIRST_QUOTA = 1_000
#: Batches are made as long as this, or so: shorter ones are all overhead, longer ones keep answers waiting.
BATCH_SECS = 2.0
#: How many times as many messages the next one may have.
MOST_GROWTH = 8.0
#: Undone batches that are listed in a report.
MOST_RESTARTS = 1_000
#: Batches that may be undone in a row with no message acked, given up or charged with it, as where a spout raises: what
#: raises would do so for ever. Room for finding the guilty row of a batch of rows, where they are tried in groups.
MOST_BARREN = 20
_PROGRESS = ("acked", "dead_letters", "crashes")


@dataclass(frozen=True)
class Control:
    """All that is known when a batch is done. What is stored with each."""

    number: int = -1
    """The last batch that is done."""
    spouts_at: str = ""
    """Where the rows of that batch are."""
    bolts_at: str = ""
    """Where the states of the bolts are: of the last batch that was not undone."""
    spark_batch: int = -1
    """Spark's number for it."""
    clock_ns: int = 0
    quota: int = FIRST_QUOTA
    undone: bool = False
    dry: bool = False
    """True if no spout would have emitted more."""
    idle: bool = False
    """True if nothing was emitted or executed."""
    closed: bool = False
    """True if all tasks are closed: there is nothing to do any more."""
    finished: bool = False
    """True if all spouts are exhausted and nothing is pending."""
    reports: Mapping[int, WorkerReport] = field(default_factory=dict)
    """The last report of each worker that counts, without its letters."""
    restarts: tuple[Restart, ...] = ()
    close_errors: tuple[str, ...] = ()
    letters_bytes: int = 0
    """Size of the file of dead letters."""
    barren: int = 0
    """Batches in a row that were undone, and led nowhere."""
    progress: int = 0
    """Messages that were acked, given up or charged, as far as they are counted."""


def doubts(layout: Layout, reports: Mapping[int, WorkerReport], rows: Mapping[tuple[int, int], int]) -> list[str]:
    """Why a batch does not count: rows of several executions are mixed, as after the death of a machine. `rows`: number
    by worker and nonce."""
    found = []
    names = layout.plan.worker_names
    for worker, name in enumerate(names):
        report = reports.get(worker)
        if report is None:
            found.append(f"{name} did not report")
            continue
        if report.rows != rows.get((worker, report.nonce), 0):
            found.append(f"rows of {name} are missing")
        missed = [
            names[feeder] for feeder in layout.feeders(worker)
            if feeder in reports and report.heard.get(feeder) != reports[feeder].nonce
        ]
        if missed:
            found.append(f"{name} heard another execution of {', '.join(missed)}")
    known = {(worker, report.nonce) for worker, report in reports.items()}
    found += [f"{names[worker]} was executed more than once" for worker, nonce in rows if (worker, nonce) not in known]
    return found


def next_turn(control: Control, clock_ns: int, active: bool, most_rows: int | None) -> HostTurn:
    """What the workers of the next batch are told."""
    quota = control.quota if most_rows is None else min(control.quota, most_rows)
    return HostTurn(
        control.number + 1, clock_ns, quota, active, closing=control.number >= 0 and (control.dry or not active),
        undone=control.undone,
        settled={task: its for report in control.reports.values() for task, its in report.settled.items()},
    )


def after(
    control: Control, turn: HostTurn, reports: Mapping[int, WorkerReport], at: str, spark_batch: int, took_secs: float,
    layout: Layout,
) -> Control:
    """What is known after a batch that counts."""
    names = layout.plan.worker_names
    raised = [(names[worker], text) for worker, report in sorted(reports.items()) for text in report.raised]
    undone = bool(raised)
    progress = sum(
        report.reading.counters[name] for report in reports.values() if report.is_spout for name in _PROGRESS
    )
    slim = {worker: replace(report, letters=[], said="") for worker, report in reports.items()}
    counting = {
        worker: report for worker, report in slim.items() if not undone or report.is_spout or worker not in
        control.reports
    }
    spouts = [report for report in reports.values() if report.is_spout]
    restarts = tuple(
        one if one.ready_after_secs is not None or undone
        else replace(one, ready_after_secs=round(turn.clock_ns / 1e9 + took_secs - one.at_secs, 3))
        for one in control.restarts
    )
    first: dict[str, str] = {}
    for name, text in raised:
        first.setdefault(name, text)
    for name, text in first.items():
        restarts += (Restart(name, f"batch {turn.number} undone", round(turn.clock_ns / 1e9, 3), None, text),)
    executed = {
        worker: report.reading.counters["executed"]
        - (control.reports[worker].reading.counters["executed"] if worker in control.reports else 0)
        for worker, report in counting.items()
    }
    return Control(
        number=turn.number, spouts_at=at, bolts_at=control.bolts_at if undone else at, spark_batch=spark_batch,
        clock_ns=turn.clock_ns + round(took_secs * 1e9), quota=_quota(control.quota, took_secs, spouts), undone=undone,
        dry=all(report.dry for report in spouts),
        idle=not any(report.emitted for report in spouts) and not any(executed.values()),
        closed=not undone and all(report.closed for report in reports.values()),
        finished=not undone and all(report.finished for report in spouts),
        reports={**control.reports, **counting}, restarts=restarts[-MOST_RESTARTS:],
        close_errors=control.close_errors if undone else (
            *control.close_errors, *(error for report in reports.values() for error in report.close_errors)
        ),
        letters_bytes=control.letters_bytes,
        barren=control.barren + 1 if undone and progress == control.progress else 0, progress=progress,
    )


def leads_nowhere(control: Control) -> str:
    """Why a run should not go on; empty if it should."""
    if control.barren < MOST_BARREN:
        return ""
    last = control.restarts[-1].error
    return f"makes no progress: {control.barren} batches in a row were undone, at last with: {last}"


def _quota(quota: int, took_secs: float, spouts: Iterable[WorkerReport]) -> int:
    """Messages of a spout task in the next batch."""
    if took_secs > 2 * BATCH_SECS:
        return max(FIRST_QUOTA, quota // 2)
    full = any(report.emitted >= quota for report in spouts)
    return round(quota * min(MOST_GROWTH, BATCH_SECS / took_secs)) if full and took_secs < BATCH_SECS else quota


def report_of(control: Control, name: str) -> RunReport:
    """The report of the run so far."""
    reports = control.reports.values()
    readings: list[TaskReading] = [report.reading for report in reports]
    failures: list[Failures] = [report.failures for report in reports]
    metrics = [
        MetricReading(component, task, kind, metric, memoryview(data))
        for report in reports for component, task, kind, metric, data in report.metrics
    ]
    report = build_report(
        name, readings, control.clock_ns / 1e9, list(control.restarts), control.finished, metrics, idle=True
    )
    return replace(report, failures=merge_failures(failures), close_errors=list(control.close_errors))


def letters_of(reports: Iterable[WorkerReport]) -> list[dict[str, Any]]:
    """The dead letters of a batch, as JSON takes them."""
    return [
        {
            "spout": component, "task": task, "message_id": shown, "reason": failure.reason,
            "component": failure.component, "error": failure.error, "attempt": failure.attempt,
        }
        for report in reports for component, task, shown, _, _, failure in report.letters
    ]
