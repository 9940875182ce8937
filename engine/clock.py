"""The one source of time for decisions: monotonic, in nanoseconds, replaceable in tests.

Guarantees: never goes back; not moved by changes of the wall clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable

NS_PER_SEC = 1_000_000_000
NS_PER_MS = 1_000_000


class Clock:
    """The machine's monotonic clock, shared by every process on it."""

    def __init__(self) -> None:
        # An attribute, not a method: the tuple path calls it once per emitted tree.
        self.now_ns: Callable[[], int] = time.monotonic_ns
        """The time in nanoseconds."""


class ManualClock(Clock):
    """A clock that moves only when told to. For tests and for simulation."""

    def __init__(self, start_ns: int = NS_PER_SEC) -> None:
        super().__init__()
        self._now_ns = start_ns
        self.now_ns = self._read

    def _read(self) -> int:
        return self._now_ns

    def advance(self, secs: float) -> None:
        """Move forward by `secs`; going back is an error."""
        self.advance_ns(round(secs * NS_PER_SEC))

    def advance_ns(self, duration_ns: int) -> None:
        """As `advance`, to the nanosecond."""
        if duration_ns < 0:
            raise ValueError(f"a clock cannot go back by {-duration_ns / NS_PER_SEC:g} seconds")
        self._now_ns += duration_ns
