"""How long each worker's heartbeat, or thread's sign of life, has stood still, by an observer who may have been away.

Guarantees: only time in which the observer was awake counts. When the whole machine, or the supervisor, was stopped for
a minute, nobody is taken for dead because of it.

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
    """Looked at regularly; more than `longest_gap_secs` between two looks counts as that much."""

    def __init__(self, longest_gap_secs: float) -> None:
        self._longest_gap_secs = longest_gap_secs
        self._seen: dict[int, _Seen] = {}

    def still_secs(self, key: int, value: int, now: float) -> float:
        """For how long the value has not changed, as far as was observed."""
        seen = self._seen.get(key)
        if seen is None or seen.value != value:
            self._seen[key] = _Seen(value, now)
            return 0.0
        seen.still_secs += min(now - seen.at, self._longest_gap_secs)
        seen.at = now
        return seen.still_secs

    def forget(self, key: int) -> None:
        """There is nobody who should make progress."""
        self._seen.pop(key, None)
