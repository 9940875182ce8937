"""Decides when the rows that a sink holds become a file.

A file is due when it has enough rows or bytes, or its first row has been held long enough. Sources often wait for acks:
with `max_spout_pending` rows held, nothing more comes, and each file would take its full time. So when rows stop coming
once again after as many as the last time, that is taken for such a stop, and the file is due at the next tick.

Guarantees that no row is held longer than `most_ns` and a tick. Decides only: no clock. Thread: the sink's.
"""

from __future__ import annotations


class Pace:
    """The decisions of one task."""

    def __init__(self, most_rows: int, most_bytes: int, most_ns: int) -> None:
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._most_ns = most_ns
        self.rows = 0
        self._bytes = 0
        self._first_ns = 0
        self._rows_at_tick = 0
        self._stops_at = 0
        """Rows after which none came any more, the last time."""

    def took(self, size_bytes: int, now_ns: int) -> bool:
        """Note one more row; whether the file is due."""
        if not self.rows:
            self._first_ns = now_ns
        self.rows += 1
        self._bytes += size_bytes
        return self.rows >= self._most_rows or self._bytes >= self._most_bytes or self._is_old(now_ns)

    def tick(self, now_ns: int) -> bool:
        """Note that time has passed; whether the file is due."""
        stopped = self.rows == self._rows_at_tick
        self._rows_at_tick = self.rows
        if not self.rows:
            return False
        if self._is_old(now_ns):
            self._stops_at = self.rows
            return True
        return stopped and 0 < self._stops_at <= self.rows

    def _is_old(self, now_ns: int) -> bool:
        return now_ns - self._first_ns >= self._most_ns

    def wrote(self) -> None:
        """Note that the rows are held no longer."""
        self.rows = self._bytes = self._rows_at_tick = 0
