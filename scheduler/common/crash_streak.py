"""Whether deaths that are charged to messages lead anywhere, or every message kills its worker.

A tuple that kills its worker becomes a dead letter after a few deaths, and these are held against nobody: the rest of
the stream flows. Where nothing flows, because a bolt fails on whatever comes, that would be a crash loop without end.

Guarantees: as long as messages are acked between these deaths, there is hope. Pure.
"""

from __future__ import annotations

CRASHES_WITHOUT_ANY_ACK = 15
"""So many before anything was ever acked: the first few messages of a stream may be bad, not all of them."""
CRASHES_WITHOUT_AN_ACK = 125
"""The same, once something was acked: the rest of a finite stream may be nothing but poison."""


class CrashStreak:
    """Fed with totals of all spouts, now and then."""

    def __init__(self) -> None:
        self._acked = 0
        self._crashes = 0

    def leads_anywhere(self, acked: int, crashes: int) -> bool:
        """Totals since the topology was submitted: messages acked, and deaths that were charged to messages."""
        if acked > self._acked:
            self._acked, self._crashes = acked, crashes
        limit = CRASHES_WITHOUT_AN_ACK if acked else CRASHES_WITHOUT_ANY_ACK
        return crashes - self._crashes < limit
