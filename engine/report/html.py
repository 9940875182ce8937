"""The report as HTML, for a notebook.

Guarantees: texts of users, such as names and errors, cannot become markup, scripts or control characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from squall.engine.foreign.plain_text import plain
from squall.engine.plural import plural

if TYPE_CHECKING:
    from squall.engine.report.run_report import RunReport

_COLUMNS = ("component", "tasks", "executed", "emitted", "acked", "failed", "ms/tuple", "capacity")
_RESTARTS_SHOWN = 20


def text_html(text: object) -> str:
    """A text as a piece of HTML."""
    return escape(plain(text))


def table_html(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers to the right."""
    lines = ["<tr>" + "".join(f"<th>{text_html(cell)}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"


def _cell(value: object) -> str:
    if value is None:
        return "<td>-</td>"
    if isinstance(value, int | float):
        shown = f"{value:,}" if isinstance(value, int) else f"{value:,.4f}"
        return f'<td style="text-align: right">{shown}</td>'
    return f'<td style="text-align: left">{text_html(value)}</td>'


def report_html(report: RunReport) -> str:
    """A run in a few lines and two tables."""
    latency = ", ".join(
        f"{name} {value:,.2f} ms" for name, value in report.latency_ms.items() if value is not None
    )
    state = "drained" if report.drained else "not drained"
    account = (
        f"{report.emitted:,} emitted ({report.replayed:,} replayed) = {report.acked:,} acked, "
        f"{report.failed:,} failed, {plural(report.dead_letters, 'dead letter')}, {report.waiting:,} waiting for a "
        f"retry, {report.pending:,} pending, {report.abandoned:,} abandoned"
    )
    parts = [
        f"<b>{text_html(report.topology)}</b> {state} after {report.duration_secs:.2f} s", account,
        f"emit to ack: {latency or 'nothing was acked'}",
    ]
    rows = [
        (name, row.tasks, row.executed, row.emitted, row.acked, row.failed, row.execute_latency_ms, row.capacity)
        for name, row in report.components.items()
    ]
    tables = [table_html(_COLUMNS, rows)]
    if report.restarts:
        newest = report.restarts[-_RESTARTS_SHOWN:]
        tables.append(table_html(
            ("worker", "died at s", "reason", "ready again after s"),
            [(one.slot, one.at_secs, one.reason, one.ready_after_secs) for one in newest],
        ))
    parts += [text_html(error) for error in report.close_errors]
    return "<div>" + "<br>".join(parts) + "".join(tables) + "</div>"
