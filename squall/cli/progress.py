"""Shows progress of `squall run` on stderr: a screen on a terminal, one short line per interval elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from squall.cli.account_text import latency_text
from squall.cli.death_news import DeathNews
from squall.cli.output import note
from squall.cli.screen import Block, alarm_cell, cut_to_window, interval_or_default, is_terminal, rendered
from squall.cli.tables import Cell, Grid, millis
from squall.engine.foreign.plain_text import plain
from squall.engine.plural import plural
from squall.engine.report.metrics import merge
from squall.engine.report.run_report import TaskReading, latency_of, total_account

if TYPE_CHECKING:
    from squall.scheduler.common.messages import RestartRecord


def _sum(readings: Sequence[TaskReading], name: str) -> int:
    return sum(reading.counters[name] for reading in readings)


class Progress:
    """Shows differences between readings. Call `update` as often as you like."""

    def __init__(self, topology: str, interval_secs: float | None = None, quiet: bool = False) -> None:
        """`interval_secs` None: what suits a screen, or a log."""
        self._topology = topology
        self._interval_secs = interval_or_default(interval_secs, sys.stderr)
        self._quiet = quiet
        self._began = self._shown = time.monotonic()
        self._before: dict[int, TaskReading] = {}
        self._deaths = DeathNews()
        self._screen: _Screen | None = None
        if not quiet and is_terminal(sys.stderr):
            self._screen = _Screen()

    @property
    def due(self) -> bool:
        return not self._quiet and time.monotonic() - self._shown >= self._interval_secs

    def update(self, readings: list[TaskReading]) -> None:
        """Show the changes since the last call."""
        now = time.monotonic()
        elapsed_secs, self._shown = now - self._shown, now
        before, self._before = self._before, {reading.task: reading for reading in readings}
        changes = [_difference(reading, before.get(reading.task)) for reading in readings]
        parts = _headline(readings, changes, elapsed_secs)
        if self._screen is not None:
            head = f"{plain(self._topology)} {now - self._began:.0f} s: {', '.join(parts)}"
            self._screen.show([head, *_grids(readings, changes, elapsed_secs)])
        else:
            note(f"{now - self._began:.0f} s: {', '.join(parts)}")

    def tell_deaths(self, deaths: Iterable[RestartRecord]) -> None:
        """Print the deaths and replacements that are new among these."""
        for line in [] if self._quiet else self._deaths.lines(deaths):
            self.print(line, "yellow")

    def print(self, line: str, style: str = "") -> None:
        """Print a line, such as a worker's, above the screen."""
        if self._screen is not None:
            self._screen.print(line, style)
        else:
            note(plain(line, keep="\t"))

    def close(self) -> None:
        if self._screen is not None:
            self._screen.close()
            self._screen = None


class _Screen:
    """A part of the terminal that is drawn anew."""

    def __init__(self) -> None:
        from rich.live import Live

        from squall.cli.plain_console import PlainConsole

        self._console = PlainConsole(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, blocks: Sequence[Block]) -> None:
        # One line stays free for the cursor.
        width, height = self._console.width, self._console.height - 1
        self._live.update(rendered(cut_to_window(blocks, width, height), width), refresh=True)

    def print(self, line: str, style: str) -> None:
        self._console.print(line, style=style or None)

    def close(self) -> None:
        self._live.stop()


def _headline(readings: list[TaskReading], changes: list[TaskReading], secs: float) -> list[str]:
    """The totals; those that are mostly 0 only if they are not."""
    spouts = [reading for reading in readings if reading.kind == "spout"]
    recent = [change for change in changes if change.kind == "spout"]
    account = total_account(spouts)
    untracked = _sum(spouts, "emitted") - account.emitted
    rare = (("waiting", account.waiting), ("failed", account.failed), ("abandoned", account.abandoned))
    return [
        f"emitted {account.emitted:,}",
        f"acked {account.acked:,} ({_sum(recent, 'acked') / secs:,.0f}/s)",
        f"pending {account.pending:,}",
        *(f"{name} {count:,}" for name, count in (*rare, ("untracked", untracked)) if count),
        *([plural(account.dead_letters, "dead letter")] if account.dead_letters else []),
        latency_text(latency_of(merge(change.histogram for change in recent)), ("p99",)),
    ]


def _grids(readings: list[TaskReading], changes: list[TaskReading], secs: float) -> list[Grid]:
    """A table of components and one of workers."""
    grids = []
    for kind in ("component", "worker"):
        totals = _grouped(readings, kind)
        rows: list[list[object]] = []
        for name, group in _grouped(changes, kind).items():
            executed, busy_ns = _sum(group, "executed"), _sum(group, "execute_ns")
            rows.append([
                name, round(executed / secs), round(_sum(group, "emitted") / secs), _sum(totals[name], "executed"),
                alarm_cell(_sum(totals[name], "failed")), _sum(totals[name], "in_queue"),
                millis(busy_ns / executed / 1e6 if executed else None),
                Cell(busy_ns, shown=f"{busy_ns / 1e9 / secs:.0%}"),
            ])
        grids.append(Grid([kind, "exec/s", "emit/s", "executed", "failed", "queue", "ms/tuple", "busy"], rows))
    return grids


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
