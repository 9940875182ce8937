"""The rules that any history of slots (`scheduler/records/worker_ledger.py`) must obey, judged by it alone."""

from __future__ import annotations

from collections.abc import Iterable

from squall.scheduler.common.messages import SlotChanged
from squall.scheduler.records.worker_ledger import BEGIN


def violations(steps: Iterable[SlotChanged], max_deaths: int, period_secs: float) -> list[str]:
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
        self._living: dict[str, SlotChanged] = {}
        """TaskPlace -> the start of the life in it."""
        self._unwatched: dict[tuple[str, int], SlotChanged] = {}
        """Work -> the life that was in it when its supervisor was gone: another may adopt it."""
        self._last: dict[tuple[str, int], int] = {}
        """Work -> its latest incarnation."""
        self._deaths: dict[tuple[str, tuple[str, int]], list[float]] = {}
        self._failed: dict[str, tuple[str, int]] = {}

    def take(self, step: SlotChanged) -> None:
        if step.event == BEGIN:
            # Lives that ended while nobody looked have no end on record.
            for slot in [slot for slot, life in self._living.items() if life.node == step.node]:
                life = self._living.pop(slot)
                self._unwatched[_work_of(life)] = life
        elif step.event == "started":
            self._started(step)
        elif step.event == "ready":
            self._be_ready(step)
        elif step.event in ("died", "stopped"):
            self._ended(step)
        elif step.event == "failed":
            self._failed[step.slot] = _work_of(step)

    def _started(self, step: SlotChanged) -> None:
        living = self._living.get(step.slot)
        if living is not None and living.pid != step.pid:
            self._say(step, f"pid {living.pid}, incarnation {living.incarnation}, has not ended")
        for slot, life in self._living.items():
            if slot != step.slot and _work_of(life) == _work_of(step):
                self._say(step, f"the same work lives in {slot}, incarnation {life.incarnation}")
        last = self._last.get(_work_of(step), 0)
        unwatched = self._unwatched.pop(_work_of(step), None)
        adopted = unwatched is not None and (unwatched.incarnation, unwatched.pid) == (step.incarnation, step.pid)
        if step.incarnation <= last and not adopted:
            self._say(step, f"incarnation {last} was there before")
        if self._failed.get(step.slot) == _work_of(step):
            self._say(step, "it had been given up")
        self._failed.pop(step.slot, None)
        deaths = self._deaths.get((step.slot, _work_of(step)), [])
        recent = [at for at in deaths if step.at_monotonic_secs - at <= self._period_secs]
        if len(recent) > self._max_deaths:
            self._say(step, f"{len(recent)} deaths within {self._period_secs:g} s; allowed: {self._max_deaths}")
        self._last[_work_of(step)] = max(last, step.incarnation)
        self._living[step.slot] = step

    def _be_ready(self, step: SlotChanged) -> None:
        living = self._living.get(step.slot)
        if living is None or living.incarnation != step.incarnation:
            self._say(step, "it had not started")

    def _ended(self, step: SlotChanged) -> None:
        living = self._living.pop(step.slot, None)
        # A fork that was refused ends a life that never began (pid 0).
        if living is not None and step.pid and living.pid != step.pid:
            self._say(step, f"pid {living.pid} lives there")
        if step.event == "died" and step.pid and not step.excused:
            self._deaths.setdefault((step.slot, _work_of(step)), []).append(step.at_monotonic_secs)
        if step.event == "stopped":
            self._deaths.pop((step.slot, _work_of(step)), None)
            self._failed.pop(step.slot, None)

    def _say(self, step: SlotChanged, what: str) -> None:
        name = f"{step.topology_id} slot {step.slot_index} incarnation {step.incarnation} (pid {step.pid})"
        self.found.append(f"{step.at_monotonic_secs:.6f} {step.slot} {name} {step.event}: {what}")


def _work_of(step: SlotChanged) -> tuple[str, int]:
    return step.topology_id, step.slot_index
