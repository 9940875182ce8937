"""Schedules the faults of a plan: says which are due, and is told which could not be carried out.

Guarantees
    * The same faults, seed and times give the same faults, with the same seeds of their draws.
    * At least `every_secs` lie between two occurrences of one fault, even if the first was late.

Seconds count from the start of the plan, on the caller's clock. Thread: the caller's.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from squall.scheduler.faults.fault import Fault

AGAIN_SECS = 0.1
"""Pause before an occurrence is tried again whose targets are away: replacements take a fraction of a second."""


@dataclass
class Course:
    """One fault of the plan and its progress."""

    fault: Fault
    due_secs: float | None
    """When it begins next; None: never again, or not known yet."""
    rng: random.Random
    begun: int = 0

    def __post_init__(self) -> None:
        self.seed = self.rng.getrandbits(32)
        """Of the next occurrence, however often it is tried."""

    @property
    def occurrence(self) -> Fault:
        """This occurrence alone, to be injected now."""
        return replace(self.fault, at_secs=0.0, after_acked=0, every_secs=None, times=None, seed=self.seed)

    def has_begun(self, now_secs: float) -> None:
        """It was carried out."""
        self.begun += 1
        self.seed = self.rng.getrandbits(32)
        again = self.fault.every_secs is not None and self.begun < (self.fault.times or self.begun + 1)
        self.due_secs = now_secs + self.fault.every_secs if again and self.fault.every_secs is not None else None

    def is_away(self, now_secs: float) -> None:
        """Its target is away: it is tried again soon."""
        self.due_secs = now_secs + AGAIN_SECS


class Schedule:
    """The faults of one plan. Call `due` whenever time has passed or messages were acked."""

    def __init__(self, faults: Sequence[Fault], seed: int) -> None:
        self.courses = [
            Course(
                fault, None if fault.after_acked else fault.at_secs,
                random.Random(f"{seed}/{number}" if fault.seed is None else fault.seed),
            )
            for number, fault in enumerate(faults)
        ]

    def due(self, now_secs: float, acked: int) -> list[Course]:
        """The faults that begin now, in order of their times. Each is to be told what became of it."""
        for course in self.courses:
            if course.due_secs is None and not course.begun and acked >= course.fault.after_acked:
                course.due_secs = now_secs
        found = [(course.due_secs, number) for number, course in enumerate(self.courses) if course.due_secs is not None]
        return [self.courses[number] for secs, number in sorted(found) if secs <= now_secs]

    def not_begun(self) -> list[Course]:
        """The faults that never began, or not as many times as asked."""
        return [course for course in self.courses if course.begun < (course.fault.times or 1)]
