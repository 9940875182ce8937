"""Columns: a word of 64 bits, a flag or a number of rows for each of several neighbours, mostly a block's members.

Words are one long integer, the first one lowest, and so are flags, of a byte each: one operation XORs or ORs all of
them. For example, words for the members 1 and 3 of four, and the flags of those that are not 0:

    member       3    2    1    0
    words       0d   00   0b   00     words_at([1, 3], column_of([0x0b, 0x0d]), 4), each with seven bytes of 0 before it
    flags       01   00   01   00     flags_at([1, 3], flags_of(range(2), 2), 4); flagged: [1, 3]

Guarantees: all forms of `RowCounts` (counts, ends, flags) agree, whichever it was built from. A form is made when it is
first asked for: most batches are executed without a look at the runs of their rows.

Pure. Thread: one at a time, its owner's.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, compress, count, repeat
from operator import sub

WORD_BYTES, WORD_BITS = 8, 64
Words = int
Flags = int
"""1 or 0 in each byte."""
_NO_WORD, _WHOLE_WORD = bytes(WORD_BYTES), b"\xff" * WORD_BYTES
_IS_ZERO = b"\1" + bytes(255)


def column_of(words: Sequence[int]) -> Words:
    """Put words of 64 bits into a column."""
    return int.from_bytes(array("Q", words).tobytes(), "little")


def words_of(column: Words, count: int) -> array[int]:
    """Reverse `column_of`."""
    return array("Q", column.to_bytes(WORD_BYTES * count, "little"))


def words_at(members: Sequence[int], column: Words, count: int) -> Words:
    """Give each word to the next of these members of `count`; a member that comes again gets the XOR of its words."""
    if isinstance(members, range):
        return column << WORD_BITS * members.start
    words = array("Q", bytes(WORD_BYTES * count))
    for member, word in zip(members, words_of(column, len(members)), strict=True):
        words[member] ^= word
    return column_of(words)


def only_flagged(column: Words, flags: bytes | bytearray) -> Words:
    """Put 0 in place of each word whose flag is 0."""
    return column & int.from_bytes(flags.replace(b"\0", _NO_WORD).replace(b"\1", _WHOLE_WORD), "little")


def zero_words(column: Words, count: int) -> Flags:
    """Flag the words that are 0."""
    # The lowest byte of each becomes the OR of all its bytes; what the next word adds to it stays above that byte.
    for shift in (32, 16, 8):
        column |= column >> shift
    lowest = column.to_bytes(WORD_BYTES * count, "little")[::WORD_BYTES]
    return int.from_bytes(lowest.translate(_IS_ZERO), "little")


def flags_of(members: Iterable[int], count: int) -> Flags:
    """Flag these of `count` members."""
    flags = bytearray(count)
    for member in members:
        flags[member] = 1
    return int.from_bytes(flags, "little")


def flags_at(members: Sequence[int], flags: Flags, count: int) -> Flags:
    """Give each flag to the next of these members of `count`."""
    if isinstance(members, range):
        return flags << 8 * members.start
    return flags_of(compress(members, flags.to_bytes(len(members), "little")), count)


def flagged(flags: Flags, count: int) -> list[int]:
    """List the members whose flag is 1."""
    return list(compress(range(count), flags.to_bytes(count, "little")))


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
