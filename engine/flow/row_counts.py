"""How many rows each of several neighbouring series of rows has; a series may be empty.

Guarantees: all forms (counts, ends, flags) agree, whichever it was built from. A form is made when it is first asked
for: most batches are executed without a look at the runs of their rows.

Pure. Thread: one at a time, its owner's.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, count, repeat
from operator import sub

_FLAGS = b"\0" + b"\1" * 255
"""1 in place of every byte but 0."""


class RowCounts:
    """Of each series: its number of rows, and the row before which it ends."""

    __slots__ = ("_counts", "_ends")

    def __init__(self, counts: Sequence[int] | None = None, ends: Sequence[int] | None = None) -> None:
        """`counts` or `ends`; `ends` as a range: each series has one row."""
        self._counts = counts
        self._ends = ends

    @classmethod
    def single(cls, count: int) -> RowCounts:
        """So many series of one row."""
        return cls(ends=range(1, count + 1))

    def __len__(self) -> int:
        found = self._ends if self._counts is None else self._counts
        return len(found or ())

    @property
    def is_single(self) -> bool:
        """True if it is known that each series has one row."""
        return type(self._ends) is range

    @property
    def counts(self) -> Sequence[int]:
        if self._counts is None:
            self._counts = b"\1" * len(self) if self.is_single else list(map(sub, self.ends, self.starts))
        return self._counts

    @property
    def ends(self) -> Sequence[int]:
        if self._ends is None:
            self._ends = list(accumulate(self._counts or ()))
        return self._ends

    @property
    def starts(self) -> list[int]:
        """The first row of each series."""
        return [0, *self.ends][:-1]

    @property
    def flags(self) -> bytes:
        """1 for each series that has a row, 0 for the others."""
        counts = self.counts
        try:
            # A seventh of the time of `bool` for each. As a list: of an array it would take the memory.
            return (counts if type(counts) is bytes else bytes(list(counts))).translate(_FLAGS)
        except ValueError:  # one has more rows than fit in a byte
            return bytes(map(bool, counts))

    def owners(self) -> Iterable[int]:
        """The series of each row."""
        return range(len(self)) if self.is_single else chain.from_iterable(map(repeat, count(), self.counts))

    def where(self, wanted: bytes) -> RowCounts:
        """The same series with those of their rows only for which `wanted` has 1 and not 0."""
        if self.is_single:
            return RowCounts(wanted)
        # Of a byte string: given a number, `count` takes twice as long.
        return RowCounts(list(map(wanted.count, repeat(b"\1"), self.starts, self.ends)))

    def without(self, others: RowCounts) -> RowCounts:
        """The same series without those of their rows that `others` has."""
        return RowCounts(list(map(sub, self.counts, others.counts)))

    def part(self, begin: int, end: int) -> RowCounts:
        """Of the series from `begin` up to `end`."""
        if begin == 0 and end == len(self):
            return self
        return RowCounts.single(end - begin) if self.is_single else RowCounts(self.counts[begin:end])

    def packed(self) -> bytes | int:
        """For `unpack`."""
        # As a list: an array takes bytes for its memory.
        return len(self) if self.is_single else array("I", list(self.counts)).tobytes()

    @classmethod
    def unpack(cls, packed: bytes | int) -> RowCounts:
        """Reverse `packed`."""
        if isinstance(packed, int):
            return cls.single(packed)
        counts = array("I")
        counts.frombytes(packed)
        return cls(counts)
