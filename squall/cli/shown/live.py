"""Shows what goes on: progress of `squall run` on stderr, and `squall status --watch` on stdout.

On a terminal a screen is drawn anew; elsewhere it is one short line each time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from squall.cli.given.interrupts import Interrupts
from squall.cli.shown.output import closed_pipe_is_no_error, note, say
from squall.cli.shown.report_text import latency_text
from squall.cli.shown.screen import Block, Screen, interval_or_default
from squall.engine.plural import plural
from squall.engine.report.metrics import merge
from squall.engine.report.repeats import Repeats, death_key
from squall.engine.report.run_report import TaskReading, latency_of, total_account

if TYPE_CHECKING:
    from squall.scheduler.common.messages import RestartRecord

_POLL_SECS = 0.1
"""Between two looks for an interrupt."""


class DeathNews:
    """The deaths of one topology that people have been told of."""

    def __init__(self, known: Iterable[RestartRecord] = ()) -> None:
        """`known`: deaths of before, which are not news."""
        self._replaced: dict[tuple[str, int], bool] = {}
        """True: nothing more is told of it."""
        self._repeats = Repeats()
        self.lines(known)
        # Those of before are not counted.
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


class Look(NamedTuple):
    """Something at one moment."""

    blocks: Sequence[Block]
    line: str
    news: Sequence[str] = ()
    """What has happened since the look before."""


def watch(look: Callable[[], Look | str], interval_secs: float) -> None:
    """Show looks until one is a text, which tells why there is nothing more to see. Exit code 130 at Ctrl-C."""
    with Interrupts() as interrupts, closed_pipe_is_no_error():
        screen = Screen(sys.stdout, say, stays=True)
        try:
            while not interrupts.count:
                seen = look()
                if isinstance(seen, str):
                    screen.tell(seen)
                    return
                for line in seen.news:
                    screen.tell(line, "yellow")
                screen.show(seen.blocks, seen.line)
                next_look = time.monotonic() + interval_secs
                while not interrupts.count and (left_secs := next_look - time.monotonic()) > 0:
                    time.sleep(min(_POLL_SECS, left_secs))
        finally:
            screen.close()
    raise click.exceptions.Exit(interrupts.exit_code if interrupts.count else 0)


class Progress:
    """Shows differences between readings. Call `update` as often as you like."""

    def __init__(self, topology: str, interval_secs: float | None = None, quiet: bool = False) -> None:
        """`interval_secs` None: what suits a screen, or a log."""
        self._topology = topology
        self._interval_secs = interval_or_default(interval_secs, sys.stderr)
        self._quiet = quiet
        self.began = self._shown = time.monotonic()
        """From when the times of its lines count."""
        self._before: dict[int, TaskReading] = {}
        self._deaths = DeathNews()
        self._screen = Screen(None if quiet else sys.stderr, note, stays=False)
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
        self._screen.show([f"{self._topology} {line}"], line)

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
