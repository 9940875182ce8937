"""Shows the progress of `squall run` on stderr.

On a terminal a screen is drawn anew; elsewhere it is one short line each time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from squall.cli.report_text import latency_text
from squall.cli.screen import LINE_INTERVAL_SECS, SCREEN_INTERVAL_SECS, Screen, is_terminal
from squall.engine.foreign.text import plural
from squall.engine.report.failure_log import Repeats, death_key
from squall.engine.report.metrics import merge
from squall.engine.report.run_report import TaskReading, latency_of, total_account

if TYPE_CHECKING:
    from squall.scheduler.common.messages import RestartRecord


class DeathNews:
    """The deaths of one topology that people have been told of."""

    def __init__(self) -> None:
        self._replaced: dict[tuple[str, int], bool] = {}
        """True: nothing more is told of it."""
        self._repeats = Repeats()

    def lines(self, deaths: Iterable[RestartRecord]) -> list[str]:
        """One line for each death and each replacement since the last call, but for equal ones only now and then."""
        told = []
        for death in deaths:
            worker = death.slot, death.incarnation
            if worker not in self._replaced:
                error = death.error.partition("\n")[0]
                text = f"worker {death.slot} died: {death.reason}{f': {error}' if error else ''}"
                line = self._repeats.line(text, death_key(death))
                self._replaced[worker] = line is None
                told += [] if line is None else [line]
            if death.ready_after_secs is not None and not self._replaced[worker]:
                self._replaced[worker] = True
                told.append(f"worker {death.slot} is back, ready after {death.ready_after_secs * 1000:.1f} ms")
        return told


class Progress:
    """Shows differences between readings. Call `update` as often as you like."""

    def __init__(self, topology: str, interval_secs: float | None = None, quiet: bool = False) -> None:
        """`interval_secs` None: what suits a screen, or a log."""
        self._topology = topology
        suits = SCREEN_INTERVAL_SECS if is_terminal(sys.stderr) else LINE_INTERVAL_SECS
        self._interval_secs = suits if interval_secs is None else interval_secs
        self._quiet = quiet
        self.began = self._shown = time.monotonic()
        """From when the times of its lines count."""
        self._before: dict[int, TaskReading] = {}
        self._deaths = DeathNews()
        self._screen = Screen(None if quiet else sys.stderr)
        self.close = self._screen.close
        self.print = self._screen.tell

    def stage(self, line: str) -> None:
        """Tell what takes long before there are readings."""
        if not self._quiet:
            self.print(line)

    @property
    def due(self) -> bool:
        return not self._quiet and time.monotonic() - self._shown >= self._interval_secs

    def update(self, readings: list[TaskReading], doing: str = "") -> None:
        """Show the changes since the last call, and before them what is being done."""
        now = time.monotonic()
        elapsed_secs, self._shown = now - self._shown, now
        spouts = {reading.task: reading for reading in readings if reading.kind == "spout"}
        before, self._before = self._before, spouts
        changes = [_difference(reading, before.get(task)) for task, reading in spouts.items()]
        line = f"{now - self.began:.0f} s: {doing}{', '.join(_headline(list(spouts.values()), changes, elapsed_secs))}"
        self._screen.show(self._topology, line)

    def tell_deaths(self, deaths: Iterable[RestartRecord]) -> None:
        """Print the deaths and replacements that are new among these."""
        for line in [] if self._quiet else self._deaths.lines(deaths):
            self.print(line, "yellow")


def _headline(spouts: list[TaskReading], changes: list[TaskReading], secs: float) -> list[str]:
    """The totals; rare counts are left out while they are 0."""
    account = total_account(spouts)
    untracked = sum(reading.counters["emitted"] for reading in spouts) - account.emitted
    acked = sum(change.counters["acked"] for change in changes)
    rare = (("waiting", account.waiting), ("failed", account.failed), ("abandoned", account.abandoned))
    return [
        f"emitted {account.emitted:,}",
        f"acked {account.acked:,} ({acked / secs:,.0f}/s)",
        f"pending {account.pending:,}",
        *(f"{name} {count:,}" for name, count in (*rare, ("untracked", untracked)) if count),
        *([plural(account.dead_letters, "dead letter")] if account.dead_letters else []),
        latency_text(latency_of(merge(change.histogram for change in changes)), ("p99",)),
    ]


def _difference(now: TaskReading, before: TaskReading | None) -> TaskReading:
    if before is None:
        return now
    counters = {name: max(0, count - before.counters[name]) for name, count in now.counters.items()}
    histogram = [max(0, a - b) for a, b in zip(now.histogram, before.histogram, strict=True)]
    return TaskReading(now.task, now.component, now.kind, now.worker, counters, histogram)
