"""The one source of time for decisions: monotonic, in nanoseconds, replaceable in tests; and the wall clock beside it.

Guarantees: `now_ns` never goes back, and is not moved by changes of the wall clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable

NS_PER_SEC = 1_000_000_000
NS_PER_MS = 1_000_000


def wall_ns() -> int:
    """The wall clock: nanoseconds since 1970. It may jump."""
    return time.time_ns()  # looked up at each call: an injected fault replaces it


class Clock:
    """The machine's monotonic clock, shared by every process on it."""

    def __init__(self) -> None:
        # An attribute, not a method: the tuple path calls it once per emitted tree.
        self.now_ns: Callable[[], int] = time.monotonic_ns
        """The time in nanoseconds."""
        self.wall_ns: Callable[[], int] = wall_ns
        """The wall clock beside it."""


class ManualClock(Clock):
    """A clock that moves only when told to. For tests and for simulation."""

    def __init__(self, start_ns: int = NS_PER_SEC) -> None:
        super().__init__()
        self._now_ns, self._jumped_ns = start_ns, 0
        self.now_ns = self._read
        self.wall_ns = lambda: self._now_ns + self._jumped_ns

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

    def jump(self, secs: float) -> None:
        """Set the wall clock forward, or back if `secs` is below 0."""
        self._jumped_ns += round(secs * NS_PER_SEC)
