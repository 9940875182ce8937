"""Shows progress of `squall run` on stderr: a table on a terminal, one plain line per interval elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich import box
from rich.live import Live
from rich.table import Table

from squall.cli.account_text import latency_text
from squall.cli.output import note
from squall.cli.plain_console import PlainConsole
from squall.engine.foreign.plain_text import plain
from squall.engine.report.metrics import merge
from squall.engine.report.run_report import TaskReading, latency_of, total_account


def _sum(readings: Sequence[TaskReading], name: str) -> int:
    return sum(reading.counters[name] for reading in readings)


class Progress:
    """Shows differences between readings. Call `update` as often as you like."""

    def __init__(self, topology: str, interval_secs: float = 1.0, quiet: bool = False) -> None:
        self._topology = topology
        self._interval_secs = interval_secs
        self._quiet = quiet
        self._began = self._shown = time.monotonic()
        self._before: dict[int, TaskReading] = {}
        self._console = PlainConsole(stderr=True)
        self._live: Live | None = None
        if not quiet and self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()

    @property
    def due(self) -> bool:
        return not self._quiet and time.monotonic() - self._shown >= self._interval_secs

    def update(self, readings: list[TaskReading]) -> None:
        """Show the changes since the last call."""
        now = time.monotonic()
        elapsed_secs, self._shown = now - self._shown, now
        before, self._before = self._before, {reading.task: reading for reading in readings}
        changes = [_difference(reading, before.get(reading.task)) for reading in readings]
        if self._live is not None:
            self._live.update(self._table(readings, changes, elapsed_secs), refresh=True)
        else:
            note(plain(self._line(readings, changes, elapsed_secs)))

    def print(self, line: str) -> None:
        """Print a worker's line above the table."""
        if self._live is not None:
            self._console.print(line)
        else:
            note(plain(line, keep="\t"))

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _headline(self, readings: list[TaskReading], changes: list[TaskReading], secs: float) -> str:
        spouts = [reading for reading in readings if reading.kind == "spout"]
        recent = [change for change in changes if change.kind == "spout"]
        latency = merge(change.histogram for change in recent)
        account = total_account(spouts)
        untracked = _sum(spouts, "emitted") - account.emitted
        return (
            f"{time.monotonic() - self._began:.0f}s emitted {account.emitted:,} "
            f"({_sum(recent, 'emitted') / secs:,.0f}/s) acked {account.acked:,} "
            f"({_sum(recent, 'acked') / secs:,.0f}/s) failed {account.failed:,} dead letters {account.dead_letters:,} "
            f"waiting {account.waiting:,} pending {account.pending:,} "
            + (f"abandoned {account.abandoned:,} " if account.abandoned else "")
            + (f"untracked {untracked:,} " if untracked else "")
            + latency_text(latency_of(latency), ("p50", "p99"))
        )

    def _line(self, readings: list[TaskReading], changes: list[TaskReading], secs: float) -> str:
        parts = [self._headline(readings, changes, secs)]
        for name, group in _grouped(changes, "component").items():
            count = _sum(group, "emitted" if group[0].kind == "spout" else "executed")
            parts.append(f"{name} {count / secs:,.0f}/s")
        for name, group in _grouped(changes, "worker").items():
            parts.append(f"{name} {(_sum(group, 'executed') + _sum(group, 'emitted')) / secs:,.0f}/s")
        return " | ".join(parts)

    def _table(self, readings: list[TaskReading], changes: list[TaskReading], secs: float) -> Table:
        title = f"{self._topology}  {self._headline(readings, changes, secs)}"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column in ("", "exec/s", "emit/s", "executed", "failed", "queue", "ms/tuple", "busy"):
            table.add_column(column, justify="left" if not column else "right", no_wrap=True)
        for kind in ("component", "worker"):
            totals = _grouped(readings, kind)
            for name, group in _grouped(changes, kind).items():
                executed, busy_ns = _sum(group, "executed"), _sum(group, "execute_ns")
                table.add_row(
                    name, f"{executed / secs:,.0f}", f"{_sum(group, 'emitted') / secs:,.0f}",
                    f"{_sum(totals[name], 'executed'):,}", f"{_sum(totals[name], 'failed'):,}",
                    f"{_sum(totals[name], 'in_queue'):,}",
                    f"{busy_ns / executed / 1e6:.4f}" if executed else "", f"{busy_ns / 1e9 / secs:.0%}",
                )
            table.add_section()
        return table


def _grouped(readings: list[TaskReading], by: str) -> dict[str, list[TaskReading]]:
    groups: dict[str, list[TaskReading]] = {}
    for reading in readings:
        groups.setdefault(getattr(reading, by), []).append(reading)
    return groups


def _difference(now: TaskReading, before: TaskReading | None) -> TaskReading:
    if before is None:
        return now
    counters = {name: max(0, count - before.counters[name]) for name, count in now.counters.items()}
    histogram = [max(0, a - b) for a, b in zip(now.histogram, before.histogram, strict=True)]
    return TaskReading(now.task, now.component, now.kind, now.worker, counters, histogram)
