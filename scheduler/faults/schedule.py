"""Schedules the faults of a plan: a state machine that takes events and returns instructions.

Guarantees
    * The same faults, seed and events give the same instructions.
    * Every Begin of a lasting fault is followed by exactly one End of its id, at the latest by `heal`; after `heal`
      nothing begins.
    * At least `every_secs` lie between two occurrences of one fault, even if the first was late.

Seconds count from the start of the plan, on the caller's clock. Thread: the caller's.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from squall.engine.errors import ClusterError
from squall.scheduler.faults.check import kind_of
from squall.scheduler.faults.fault import AfterAcked, AfterSecs, Fault
from squall.scheduler.faults.resolution import draw_all
from squall.scheduler.faults.target import AnyTarget, parse_target
from squall.scheduler.faults.view import View

AGAIN_SECS = 0.1
"""Pause before an occurrence is tried again whose targets are away: replacements take a fraction of a second."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Carry a fault out now."""

    id: int
    number: int
    """Position of the fault in the plan, from 0."""
    fault: Fault
    """As requested."""
    targets: tuple[str, ...]
    """With random ones drawn."""
    at_secs: float
    ends_secs: float | None
    """None: it is over at once."""
    seed: int
    """Seed of the fault's own draws, of tuples or frames."""


@dataclass(frozen=True, slots=True)
class End:
    """Undo a fault now."""

    id: int
    at_secs: float


Instruction: TypeAlias = Begin | End


@dataclass(slots=True)
class _Course:
    """One fault of the plan and its progress."""

    fault: Fault
    lasts_secs: float | None
    targets: list[AnyTarget]
    rng: random.Random
    begun: int = 0

    @property
    def is_over(self) -> bool:
        if self.fault.times is not None:
            return self.begun >= self.fault.times
        return self.begun > 0 and self.fault.every_secs is None


@dataclass(slots=True)
class Schedule:
    """The faults of one plan. Call `turn` whenever time has passed or messages were acked."""

    faults: Sequence[Fault]
    seed: int
    _courses: list[_Course] = field(default_factory=list)
    _due: list[tuple[float, int]] = field(default_factory=list)
    """Heap of (time, number of the course) for beginnings by the clock."""
    _waiting: list[int] = field(default_factory=list)
    """Numbers of the courses that begin after a number of acked messages."""
    _in_force: list[tuple[float, int]] = field(default_factory=list)
    """Heap of (end, id)."""
    _last_id: int = 0
    _healed: bool = False

    def __post_init__(self) -> None:
        for number, fault in enumerate(self.faults):
            rng = random.Random(f"{self.seed}/{number}" if fault.seed is None else fault.seed)
            targets = [parse_target(target) for target in fault.targets]
            self._courses.append(_Course(fault, kind_of(fault).ends_after_secs(fault), targets, rng))
            match fault.when:
                case AfterSecs(secs):
                    heapq.heappush(self._due, (secs, number))
                case AfterAcked():
                    self._waiting.append(number)

    def not_begun(self) -> list[tuple[int, Fault, int]]:
        """The faults that never began, or not as many times as asked: number, fault, and times that it began."""
        return [
            (number, course.fault, course.begun)
            for number, course in enumerate(self._courses)
            if course.begun < (course.fault.times or 1)
        ]

    def turn(self, now_secs: float, acked: int, view: View) -> list[Instruction]:
        """The instructions that are due, in order."""
        found: list[Instruction] = list(self._ends(now_secs))
        if self._healed:
            return found
        for number in [number for number in self._waiting if self._is_reached(number, acked)]:
            self._waiting.remove(number)
            heapq.heappush(self._due, (now_secs, number))
        due = []
        while self._due and self._due[0][0] <= now_secs:
            due.append(heapq.heappop(self._due)[1])
        for number in due:
            found += self._begin(number, now_secs, view)
        return found

    def heal(self, now_secs: float) -> list[Instruction]:
        """End everything, for good."""
        self._healed = True
        self._due.clear()
        self._waiting.clear()
        ends: list[Instruction] = [End(id_, now_secs) for _, id_ in sorted(self._in_force)]
        self._in_force.clear()
        return ends

    def postpone(self, begin: Begin) -> None:
        """Try a fault again soon that could not be carried out because its targets are away."""
        self._in_force = [entry for entry in self._in_force if entry[1] != begin.id]
        heapq.heapify(self._in_force)
        self._courses[begin.number].begun -= 1
        if not self._healed:
            self._due = [entry for entry in self._due if entry[1] != begin.number]
            heapq.heapify(self._due)
            heapq.heappush(self._due, (begin.at_secs + AGAIN_SECS, begin.number))

    def _is_reached(self, number: int, acked: int) -> bool:
        when = self._courses[number].fault.when
        return isinstance(when, AfterAcked) and acked >= when.tuples

    def _begin(self, number: int, now_secs: float, view: View) -> list[Instruction]:
        course = self._courses[number]
        fault = course.fault
        try:
            targets = tuple(str(target) for target in draw_all(course.targets, view, course.rng))
        except ClusterError:
            heapq.heappush(self._due, (now_secs + AGAIN_SECS, number))
            return []
        course.begun += 1
        self._last_id += 1
        ends_secs = None if course.lasts_secs is None else now_secs + course.lasts_secs
        if ends_secs is not None:
            heapq.heappush(self._in_force, (ends_secs, self._last_id))
        if fault.every_secs is not None and not course.is_over:
            heapq.heappush(self._due, (now_secs + fault.every_secs, number))
        return [Begin(self._last_id, number, fault, targets, now_secs, ends_secs, course.rng.getrandbits(63))]

    def _ends(self, now_secs: float) -> Iterator[End]:
        while self._in_force and self._in_force[0][0] <= now_secs:
            yield End(heapq.heappop(self._in_force)[1], now_secs)
