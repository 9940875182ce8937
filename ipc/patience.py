"""When to ask again for what does not come: soon, then at twice the interval each time, then once a second for ever.

Guarantees: who waits for nothing, or gets what it waits for in time, never asks. Pure: the clock is handed in.
"""

from __future__ import annotations

ASK_AFTER_NS = 50_000_000
"""Longer than an idle worker sleeps (30 ms), and than most turns take: who is merely slow is seldom asked."""
ASK_EVERY_NS = 1_000_000_000
"""What was cut off begins to recover so soon after it no longer is."""


class Patience:
    """Of one who waits for things that are numbered from 1, one after the other."""

    __slots__ = ("_ask_at_ns", "_awaited", "_wait_ns")

    def __init__(self) -> None:
        self._awaited = 0
        self._wait_ns = 0
        self._ask_at_ns = 0

    def is_over(self, awaited: int, now_ns: int) -> bool:
        """Whether to ask now for number `awaited`, which is not there yet; 0: nothing is awaited. Looked at every now
        and then; the first look at a number begins the wait."""
        if awaited != self._awaited:
            self._awaited, self._wait_ns = awaited, ASK_AFTER_NS
            self._ask_at_ns = now_ns + ASK_AFTER_NS
            return False
        if not awaited or now_ns < self._ask_at_ns:
            return False
        self._wait_ns = min(2 * self._wait_ns, ASK_EVERY_NS)
        self._ask_at_ns = now_ns + self._wait_ns
        return True
