"""Prints the report of a run for people."""

from __future__ import annotations

from squall.cli.account_text import detail_blocks, emitted_text, latency_text
from squall.cli.screen import Block, alarm_cell, print_blocks
from squall.cli.tables import Grid, millis
from squall.engine.foreign.plain_text import plain, plain_values
from squall.engine.report.run_report import Restart, RunReport


def print_summary(report: RunReport) -> None:
    """Print the report on stdout."""
    document = plain_values(report.to_dict())
    rate = report.acked / report.duration_secs if report.duration_secs else 0.0
    state = "drained" if report.drained else "stopped"
    totals, measured, failed = detail_blocks(document)
    outcome = f"{plain(report.topology)} {state} after {report.duration_secs:.2f} s"
    head = [
        f"{outcome}: {emitted_text(document)}; {rate:,.0f} acked/s",
        f"emit to ack: {latency_text(report.latency_ms)}", *totals,
    ]
    blocks: list[Block] = ["\n".join(head), _components(report)]
    deaths = [line for restart in report.restarts for line in _death_lines(restart)]
    if tail := [*measured, *deaths, *failed]:
        blocks.append("\n".join(tail))
    print_blocks(blocks)


def _components(report: RunReport) -> Grid:
    return Grid(
        ["component", "tasks", "executed", "emitted", "acked", "failed", "ms/tuple", "capacity"],
        [
            [
                name, row.tasks, row.executed, row.emitted, row.acked, alarm_cell(row.failed),
                millis(row.execute_latency_ms), row.capacity,
            ]
            for name, row in report.components.items()
        ],
    )


def _death_lines(restart: Restart) -> list[str]:
    again = "not ready again"
    if restart.ready_after_secs is not None:
        again = f"ready again after {restart.ready_after_secs * 1000:.1f} ms"
    if restart.working_after_secs is not None:
        again += f", at work after {restart.working_after_secs * 1000:.1f} ms"
    memory = f" (it held {restart.rss_bytes / 2**20:,.0f} MiB)" if restart.rss_bytes else ""
    line = f"worker {restart.slot} died at {restart.at_secs:.2f} s: {restart.reason}{memory}; {again}"
    error = [f"    {restart.error.splitlines()[0]}"] if restart.error else []
    return [plain(text) for text in (line, *error)]
