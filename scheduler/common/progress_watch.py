"""How long a worker's heartbeat, or a thread's sign of life, has stood still, for an observer that may sleep.

Guarantees: only time in which the observer was awake counts. If the machine, or the supervisor, was stopped for a
minute, no worker is taken for dead because of it.

Pure: time comes in as a number on the monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class _Seen:
    value: int
    at: float
    still_secs: float = 0.0


class ProgressWatch:
    """Ask it regularly: a gap longer than `longest_gap_secs` between two looks counts as that long."""

    def __init__(self, longest_gap_secs: float) -> None:
        self._longest_gap_secs = longest_gap_secs
        self._seen: dict[int, _Seen] = {}

    def still_secs(self, key: int, value: int, now: float) -> float:
        """Seconds for which the value has been observed unchanged."""
        seen = self._seen.get(key)
        if seen is None or seen.value != value:
            self._seen[key] = _Seen(value, now)
            return 0.0
        seen.still_secs += min(now - seen.at, self._longest_gap_secs)
        seen.at = now
        return seen.still_secs

    def forget(self, key: int) -> None:
        """Stop observing this key."""
        self._seen.pop(key, None)
