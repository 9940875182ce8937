"""Decides when to start a dead worker again: at once, later, or never.

Guarantees: the first deaths lead to a restart at once, further ones after a growing, jittered delay; within any period,
no more than `max_deaths` lead to one. A worker that has survived its probation starts again from zero delay.

Relies on: nothing. Pure: time comes in as a number on the monotonic clock, chance as a `random.Random`.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class RestartPolicyOptions:
    """The policy's numbers. Intensity (`max_deaths`) and period are Erlang's terms."""

    immediate_restarts: int = 3
    first_delay_secs: float = 0.1
    delay_factor: float = 2.0
    max_delay_secs: float = 1.0
    """Short enough that a worker that dies at once exceeds `max_deaths` within `period_secs`."""
    jitter_ratio: float = 0.2
    probation_secs: float = 1.0
    """Long enough for a worker that dies at once not to pass; one that is killed now and then is replaced at once."""
    max_deaths: int = 30
    """Few enough for their delays to fit into the period: a worker that dies at once would never be given up."""
    period_secs: float = 60.0

    def delay_secs(self, deaths_in_a_row: int) -> float:
        """Delay after that many deaths in a row, before jitter."""
        delayed = deaths_in_a_row - self.immediate_restarts
        if delayed <= 0:
            return 0.0
        # Cap the exponent: a float would overflow long after the delay has reached its limit.
        return min(self.max_delay_secs, self.first_delay_secs * self.delay_factor ** min(delayed - 1, 64))


@dataclass(frozen=True)
class StartAgain:
    """Start again after `delay_secs` (0: at once)."""

    delay_secs: float


@dataclass(frozen=True)
class GiveUp:
    """Too many deaths."""

    deaths: int
    period_secs: float

    def __str__(self) -> str:
        return f"{self.deaths} deaths within {self.period_secs:g} s"


class RestartPolicy:
    """The deaths of one slot's present work."""

    def __init__(self, options: RestartPolicyOptions, rng: random.Random) -> None:
        self._options = options
        self._rng = rng
        self._deaths: deque[float] = deque(maxlen=options.max_deaths + 1)
        self._in_a_row = 0
        self._refusals_in_a_row = 0

    def reset(self) -> None:
        """Forget all deaths: the slot has new work, or an operator has reset it."""
        self._deaths.clear()
        self._in_a_row = 0
        self._refusals_in_a_row = 0

    def died(self, now: float, lived_secs: float, excused: bool = False) -> StartAgain | GiveUp:
        """A worker has ended without being told to. An excused death brought a poison tuple nearer to the dead-letter
        ledger, which is progress: no reason to give up, nor for a long delay."""
        options = self._options
        self._refusals_in_a_row = 0
        self._in_a_row = 1 if lived_secs >= options.probation_secs else self._in_a_row + 1
        if excused:
            return StartAgain(self._jittered(min(options.first_delay_secs, options.delay_secs(self._in_a_row))))
        self._deaths.append(now)
        while now - self._deaths[0] > options.period_secs:
            self._deaths.popleft()
        if len(self._deaths) > options.max_deaths:
            return GiveUp(len(self._deaths), options.period_secs)
        return StartAgain(self._jittered(options.delay_secs(self._in_a_row)))

    def fork_refused(self) -> StartAgain:
        """The machine could not fork. That is not the work's fault: it counts as no death, but the next try waits."""
        self._refusals_in_a_row += 1
        equivalent_deaths = self._options.immediate_restarts + self._refusals_in_a_row
        return StartAgain(self._jittered(self._options.delay_secs(equivalent_deaths)))

    def _jittered(self, delay_secs: float) -> float:
        if delay_secs == 0:
            return 0.0
        jitter = self._options.jitter_ratio
        return delay_secs * self._rng.uniform(1 - jitter, 1 + jitter)
