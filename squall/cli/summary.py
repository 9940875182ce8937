"""The report of a run, for people."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from engine.report import RunReport
from squall.cli.account_text import failure_lines, metric_lines

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
    document = report.to_dict()
    for line in metric_lines(document):
        console.print(line, markup=False)
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
    for line in failure_lines(document):
        console.print(line, markup=False)
