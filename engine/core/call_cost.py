"""Decides how many rows a batch bolt is given in a call, from what its calls have cost.

A call takes a fixed time and a time for each row: a bulk insert takes 50 ms, and 2 us a row. Given what fits 5 ms, it
would get one row a call, for ever. So the rows of a call may take as long as rows of other bolts may (`slice_ns`), or
four times the fixed time, so that this is a fifth of the whole at most.

Both times are those of the line through the last calls (least squares; a call counts four fifths of the next one). A
line takes calls of different lengths: while all have the same, each doubles what the next one may have. No call takes
less than the fixed time, so the shortest of the last ones bounds it: a processor that others take for a while makes
calls longer, and would pass for a fixed time.

Decides only; clock and rows are the caller's. Thread: that of the task.
"""

from __future__ import annotations

from collections import deque

_KEPT = 0.8
"""Weight of a call in that of the next one."""
_GROWTH = 4
"""A call has at most so many times the rows of the longest before: 65,536 after eight."""
_ROWS_PER_FIXED = 4
_LAST = 32
"""Calls of which the shortest bounds the fixed time."""
_LEAST_FIXED_NS = 1_000_000
"""Fixed time for which batches are joined: for less, copying their rows (some 100 ns each) costs as much."""
_MOST_ROWS_NS = 2_000_000_000
"""Time of the rows in a call whose fixed time is longer than half a second: a loop may be silent for so long."""
_LEAST_SPREAD = 0.01
"""Square of the share by which lengths must differ to tell fixed time from time for rows."""


class CallCost:
    """The costs of one task's calls."""

    __slots__ = (
        "_last_ns", "_ns", "_rows", "_rows_ns", "_slice_ns", "_squares", "_weight", "fixed_ns", "row_ns", "set_rows",
    )

    def __init__(self, slice_ns: int, set_rows: int = 0) -> None:
        """`set_rows`: the rows of every call, if the user has set them."""
        self._slice_ns = slice_ns
        self.set_rows = set_rows
        self._weight = self._rows = self._ns = self._squares = self._rows_ns = 0.0
        """Weighted sums: of ones, rows, times, rows * rows, rows * times."""
        self._last_ns = deque[int](maxlen=_LAST)
        self.fixed_ns = 0.0
        self.row_ns = 0.0

    @property
    def worth_rows(self) -> float:
        """Rows of a call above which more of them make a row little cheaper."""
        if self.set_rows:
            return self.set_rows
        if self.fixed_ns < _LEAST_FIXED_NS:
            return 0
        return _ROWS_PER_FIXED * self.fixed_ns / self.row_ns if self.row_ns else float("inf")

    def called(self, rows: int, took_ns: int, allowed: int) -> int:
        """Note a call, which might have had `allowed` rows; return how many the next one may have."""
        self._weight = _KEPT * self._weight + 1
        self._rows = _KEPT * self._rows + rows
        self._ns = _KEPT * self._ns + took_ns
        self._squares = _KEPT * self._squares + rows * rows
        self._rows_ns = _KEPT * self._rows_ns + rows * took_ns
        mean_rows, mean_ns = self._rows / self._weight, self._ns / self._weight
        spread = self._squares / self._weight - mean_rows * mean_rows
        differ = spread > _LEAST_SPREAD * mean_rows * mean_rows
        row_ns = (self._rows_ns / self._weight - mean_rows * mean_ns) / spread if differ else self.row_ns
        self._last_ns.append(took_ns)
        self.fixed_ns = min(max(mean_ns - row_ns * mean_rows, 0.0), *self._last_ns)
        if differ:
            self.row_ns = max(mean_ns - self.fixed_ns, 0.0) / mean_rows
        if self.set_rows:
            return self.set_rows
        if not differ and self._weight > 1:
            return max(allowed, 2 * rows)
        most = max(allowed, _GROWTH * rows, rows * self._slice_ns // (took_ns or 1))
        if not self.row_ns:
            return most
        rows_ns = max(self._slice_ns, min(_ROWS_PER_FIXED * self.fixed_ns, _MOST_ROWS_NS))
        return max(1, min(most, int(rows_ns / self.row_ns)))
