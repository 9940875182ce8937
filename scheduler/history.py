"""The history of a node's slots: every step their lives took, on disk, and the rules any such history must obey.

Guarantees: a line per step, written in one piece before the step is reported to anybody; the file is bounded (a second,
older one is kept). `violations` needs nothing but the records, so that what a supervisor did can be judged by somebody
who was not there.

Relies on: one supervisor per node at a time. Times are of the monotonic clock, which is the
same for all processes of the machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from squall.ipc.line_file import append_line, read_lines

MAX_BYTES = 4 << 20
BEGIN = "supervisor"
"""Event: a supervisor begins. What happened to workers while there was none is in no record."""


@dataclass(frozen=True)
class Step:
    """One step of a slot's life."""

    at_secs: float
    node: str
    port: int
    event: str
    """"started", "ready", "died", "stopped", "failed"; "supervisor" (port 0)."""
    topology_id: str = ""
    slot_index: int = -1
    incarnation: int = 0
    pid: int = 0
    reason: str = ""
    excused: bool = False
    """A death that the restart policy does not count."""

    @property
    def place(self) -> str:
        return f"{self.node}:{self.port}"

    @property
    def work(self) -> tuple[str, int]:
        return self.topology_id, self.slot_index


class History:
    """The writing end. Owner: the supervisor's loop."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, step: Step) -> None:
        """OSError when the disk is full."""
        if append_line(self._path, json.dumps(asdict(step))) > MAX_BYTES:
            os.rename(self._path, self._path.with_suffix(".old"))


def read_history(directory: Path) -> list[Step]:
    """The steps of all nodes, in order of time."""
    return sorted(_read(directory), key=lambda step: step.at_secs)


def _read(directory: Path) -> Iterator[Step]:
    for name in sorted(directory.glob("history-*.old")) + sorted(directory.glob("history-*.jsonl")):
        for line in read_lines(name):
            yield Step(**json.loads(line))


def violations(steps: Iterable[Step], max_deaths: int, period_secs: float) -> list[str]:
    """What in a history, in order of time, must not have happened; empty when all is well."""
    check = _Check(max_deaths, period_secs)
    for step in steps:
        check.take(step)
    return check.found


class _Check:
    """Replays a history."""

    def __init__(self, max_deaths: int, period_secs: float) -> None:
        self.found: list[str] = []
        self._max_deaths = max_deaths
        self._period_secs = period_secs
        self._living: dict[str, Step] = {}
        """Place -> the start of the life in it."""
        self._unwatched: dict[tuple[str, int], Step] = {}
        """Work -> the life that was in it when its supervisor was gone: another may adopt it."""
        self._last: dict[tuple[str, int], int] = {}
        """Work -> its latest incarnation."""
        self._deaths: dict[tuple[str, tuple[str, int]], list[float]] = {}
        self._failed: dict[str, tuple[str, int]] = {}

    def take(self, step: Step) -> None:
        if step.event == BEGIN:
            # Lives that ended while nobody looked have no end on record.
            for place in [place for place, life in self._living.items() if life.node == step.node]:
                life = self._living.pop(place)
                self._unwatched[life.work] = life
        elif step.event == "started":
            self._started(step)
        elif step.event == "ready":
            self._be_ready(step)
        elif step.event in ("died", "stopped"):
            self._ended(step)
        elif step.event == "failed":
            self._failed[step.place] = step.work

    def _started(self, step: Step) -> None:
        living = self._living.get(step.place)
        if living is not None and living.pid != step.pid:
            self._say(step, f"pid {living.pid}, incarnation {living.incarnation}, has not ended")
        for place, life in self._living.items():
            if place != step.place and life.work == step.work:
                self._say(step, f"the same work lives in {place}, incarnation {life.incarnation}")
        last = self._last.get(step.work, 0)
        unwatched = self._unwatched.pop(step.work, None)
        adopted = unwatched is not None and (unwatched.incarnation, unwatched.pid) == (step.incarnation, step.pid)
        if step.incarnation <= last and not adopted:
            self._say(step, f"incarnation {last} was there before")
        if self._failed.get(step.place) == step.work:
            self._say(step, "it had been given up")
        self._failed.pop(step.place, None)
        deaths = self._deaths.get((step.place, step.work), [])
        recent = [at for at in deaths if step.at_secs - at <= self._period_secs]
        if len(recent) > self._max_deaths:
            self._say(step, f"{len(recent)} deaths within {self._period_secs:g} s; allowed: {self._max_deaths}")
        self._last[step.work] = max(last, step.incarnation)
        self._living[step.place] = step

    def _be_ready(self, step: Step) -> None:
        living = self._living.get(step.place)
        if living is None or living.incarnation != step.incarnation:
            self._say(step, "it had not started")

    def _ended(self, step: Step) -> None:
        living = self._living.pop(step.place, None)
        # A fork that was refused ends a life that never began (pid 0).
        if living is not None and step.pid and living.pid != step.pid:
            self._say(step, f"pid {living.pid} lives there")
        if step.event == "died" and step.pid and not step.excused:
            self._deaths.setdefault((step.place, step.work), []).append(step.at_secs)
        if step.event == "stopped":
            self._deaths.pop((step.place, step.work), None)
            self._failed.pop(step.place, None)

    def _say(self, step: Step, what: str) -> None:
        name = f"{step.topology_id} slot {step.slot_index} incarnation {step.incarnation} (pid {step.pid})"
        self.found.append(f"{step.at_secs:.6f} {step.place} {name} {step.event}: {what}")
