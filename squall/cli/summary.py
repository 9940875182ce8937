"""The report of a run, for people."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from engine.report import RunReport

_PLAIN_WIDTH = 120
"""Columns where nobody knows how wide the reader's window is: enough for every figure in full."""


def print_summary(report: RunReport) -> None:
    """On stdout."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    rate = report.acked / report.duration_secs if report.duration_secs else 0.0
    state = "drained" if report.drained else "stopped"
    console.print(
        f"{report.topology} {state} after {report.duration_secs:.2f} s: {report.emitted:,} emitted, "
        f"{report.acked:,} acked ({rate:,.0f}/s), {report.failed:,} failed, {report.replayed:,} replayed, "
        f"{report.pending:,} pending, {report.dead_letters:,} dead letters"
    )
    latency = report.latency_ms
    console.print(
        f"emit to ack: p50 {latency['p50']:.2f} ms, p90 {latency['p90']:.2f} ms, p99 {latency['p99']:.2f} ms, "
        f"max {latency['max']:.2f} ms"
    )
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("component", "tasks", "executed", "emitted", "acked", "failed", "ms/tuple", "capacity"):
        table.add_column(column, justify="left" if column == "component" else "right", no_wrap=True)
    for name, row in report.components.items():
        table.add_row(
            name, str(row.tasks), f"{row.executed:,}", f"{row.emitted:,}", f"{row.acked:,}", f"{row.failed:,}",
            f"{row.execute_latency_ms:.4f}", f"{row.capacity:.2f}",
        )
    console.print(table)
    for component, metrics in report.metrics.items():
        for name, value in metrics.items():
            console.print(f"{component}: {name} = {_shown(value)}", markup=False)
    for restart in report.restarts:
        again = "not ready again"
        if restart.ready_after_secs is not None:
            again = f"ready again after {restart.ready_after_secs * 1000:.1f} ms"
        if restart.working_after_secs is not None:
            again += f", at work after {restart.working_after_secs * 1000:.1f} ms"
        memory = f" (it held {restart.rss_bytes / 2**20:,.0f} MiB)" if restart.rss_bytes else ""
        console.print(f"worker {restart.slot} died at {restart.at_secs:.2f} s: {restart.reason}{memory}; {again}")
        if restart.error:
            console.print(f"    {restart.error.splitlines()[0]}", markup=False)
    _print_failures(console, report)
    if any(report.links.values()):
        console.print("links: " + ", ".join(f"{count:,} {name}" for name, count in report.links.items()))


def _print_failures(console: Console, report: RunReport) -> None:
    """Counts by reason of each component, and its last failure."""
    for name, failures in report.failures.items():
        counts = ", ".join(f"{count:,} {reason}" for reason, count in failures.counts.items())
        last = failures.last[-1]
        where = f" in {last.component}[{last.task}]" if last.component else ""
        on = f" on {last.worker}" if last.worker else ""
        error = f": {last.error}" if last.error else ""
        console.print(
            f"failures of {name}: {counts}; the last at {last.at_secs:.2f} s was message {last.message_id} of "
            f"{last.spout}, {last.reason}{where}{on}{error} (attempt {last.attempt})",
            markup=False,
        )


def _shown(value: object) -> str:
    """A user's metric: a counter, a gauge per task, or a histogram."""
    if not isinstance(value, dict):
        return f"{value:,}"
    return ", ".join(f"{key if isinstance(key, str) else f'task {key}'} {number:,.6g}" for key, number in value.items())
