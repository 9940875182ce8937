"""Prints the report of a run for people."""

from __future__ import annotations

from rich import box
from rich.table import Table

from squall.cli.account_text import detail_blocks, emitted_text, latency_text
from squall.cli.plain_console import PlainConsole
from squall.engine.report.run_report import RunReport

_PLAIN_WIDTH = 120
"""Columns if the window's width is unknown: enough for every figure in full."""


def print_summary(report: RunReport) -> None:
    """Print the report on stdout."""
    console = PlainConsole(width=_PLAIN_WIDTH)
    document = report.to_dict()
    rate = report.acked / report.duration_secs if report.duration_secs else 0.0
    state = "drained" if report.drained else "stopped"
    console.print(
        f"{report.topology} {state} after {report.duration_secs:.2f} s: {emitted_text(document)}; {rate:,.0f} acked/s"
    )
    console.print(f"emit to ack: {latency_text(report.latency_ms)}")
    totals, measured, failed = detail_blocks(document)
    for line in totals:
        console.print(line)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("component", "tasks", "executed", "emitted", "acked", "failed", "ms/tuple", "capacity"):
        table.add_column(column, justify="left" if column == "component" else "right", no_wrap=True)
    for name, row in report.components.items():
        table.add_row(
            name, str(row.tasks), f"{row.executed:,}", f"{row.emitted:,}", f"{row.acked:,}", f"{row.failed:,}",
            "-" if row.execute_latency_ms is None else f"{row.execute_latency_ms:.4f}", f"{row.capacity:.2f}",
        )
    console.print(table)
    for line in measured:
        console.print(line)
    for restart in report.restarts:
        again = "not ready again"
        if restart.ready_after_secs is not None:
            again = f"ready again after {restart.ready_after_secs * 1000:.1f} ms"
        if restart.working_after_secs is not None:
            again += f", at work after {restart.working_after_secs * 1000:.1f} ms"
        memory = f" (it held {restart.rss_bytes / 2**20:,.0f} MiB)" if restart.rss_bytes else ""
        console.print(f"worker {restart.slot} died at {restart.at_secs:.2f} s: {restart.reason}{memory}; {again}")
        if restart.error:
            console.print(f"    {restart.error.splitlines()[0]}")
    for line in failed:
        console.print(line)
