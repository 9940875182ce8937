"""Ranges: a set of whole numbers that is kept as ranges, so that a million numbers in a row take no more than one.

::

    add 0 to 5, add 7 to 9      │0 ─── 5)  │7 ─ 9)          6 is a hole
    add 5 to 7                  │0 ───────────── 9)

Pure. Thread: any, one at a time.
"""

from __future__ import annotations

import marshal
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Ranges:
    """Numbers, as ranges [start, end) that neither meet nor overlap, in ascending order."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self.add(start, end)

    @classmethod
    def unpacked(cls, packed: bytes) -> Ranges:
        """Reverse `packed`."""
        numbers = marshal.loads(packed)
        return cls(zip(numbers[::2], numbers[1::2], strict=True))

    @property
    def packed(self) -> bytes:
        """Return them as they are stored."""
        return marshal.dumps([number for pair in self for number in pair], 2)

    def add(self, start: int, end: int) -> None:
        """Add the numbers from `start` to before `end`."""
        # The ranges that touch it become one with it.
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def __contains__(self, number: int) -> bool:
        return self.end_from(number) > number

    def end_from(self, number: int) -> int:
        """Return the lowest number from this one on that is not in the set."""
        place = bisect_right(self._starts, number) - 1
        return max(number, self._ends[place]) if place >= 0 else number

    def meets(self, first: int, last: int) -> bool:
        """Return True if a number from `first` to `last`, inclusive, is in the set."""
        place = bisect_right(self._ends, first)
        return place < len(self._starts) and self._starts[place] <= last

    @property
    def end(self) -> int:
        """Return the number after the highest one; 0 if there is none."""
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._starts)
