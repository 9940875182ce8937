"""Blocks of trees (`engine.flow.ids`) at both ends: which of their members are open, and which block a root is in. An
acker has an XOR for each member, in a column; a spout task has its messages (`engine.tracking.pending_table`).

Guarantees: as of single trees (`engine.tracking.acker`). A tree that has been answered, or given up, stays so: what
comes for it later changes nothing.

Relies on: blocks beginning in the acker's own worker, before any ack of theirs can come.

Pure: no clock, no I/O. Thread: the worker's loop.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Generic, TypeVar

from squall.engine.flow.ids import ACKER_BITS, Block
from squall.engine.flow.member_columns import Flags, Words, column_of, flagged, words_of, zero_words


class OpenMembers:
    """The members of a block that are open."""

    __slots__ = ("_count", "block", "is_open")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.is_open = bytearray(b"\1" * block.members)
        """1 for each member that is open, 0 for those that are gone: answered, or given up."""
        self._count = block.members

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return compress(range(self.block.members), bytes(self.is_open))

    def leave(self, members: Sequence[int]) -> None:
        """Members that are open, each named once, are gone from now on."""
        self._count -= len(members)
        if self._count:
            is_open = self.is_open
            for member in members:
                is_open[member] = 0
        else:
            self.is_open = bytearray(self.block.members)

    def open_of(self, members: Sequence[int]) -> Sequence[int]:
        """Those of the members that are open."""
        return members if self._count == self.block.members else list(filter(self.is_open.__getitem__, members))


Part = TypeVar("Part", bound=OpenMembers)


class Blocks(Generic[Part]):
    """Blocks that have an open member, in the order in which they began."""

    __slots__ = ("_bases", "_by_base")

    def __init__(self) -> None:
        self._by_base: dict[int, Part] = {}
        self._bases: list[int] = []

    def __iter__(self) -> Iterator[Part]:
        return iter(self._by_base.values())

    def begin(self, part: Part) -> None:
        self._by_base[part.block.base] = part
        insort(self._bases, part.block.base)

    def get(self, base: int) -> Part | None:
        """The block with this first root, as long as one of its members is open."""
        return self._by_base.get(base)

    def find(self, root: int) -> tuple[Part, int] | None:
        """The block and the member of a tree that is open."""
        at = bisect_right(self._bases, root) - 1
        if at < 0:
            return None
        base = self._bases[at]
        part, member = self._by_base[base], root - base >> ACKER_BITS
        is_open = part.is_open
        return (part, member) if member < len(is_open) and is_open[member] else None

    def drop_if_done(self, part: Part) -> None:
        """Forget a block that has no open member any more."""
        if not len(part):
            self.drop(part)

    def drop(self, part: Part) -> None:
        """Forget a block."""
        base = part.block.base
        if self._by_base.pop(base, None) is not None:
            self._bases.remove(base)


class TrackedBlock(OpenMembers):
    """A block at its acker."""

    __slots__ = ("_words", "_xors", "age", "masks", "spout_task")

    def __init__(self, block: Block, xors: Words, spout_task: int, masks: dict[int, Flags]) -> None:
        super().__init__(block)
        self.spout_task = spout_task
        self._xors = xors
        """The XOR of each member; words of members that are gone are meaningless."""
        self._words: array[int] | None = None
        """The same as an array, in place of `_xors`, while members are looked at one by one."""
        self.masks = masks
        """Bit of a worker's incarnation -> the members that hold, or held, a part there."""
        self.age = 0

    def ack(self, xors: Words) -> Sequence[int]:
        """XOR a word into each member; returns the members that are processed by it."""
        if self._words is not None:
            self._xors, self._words = column_of(self._words), None
        self._xors ^= xors
        return self.finished()

    def finished(self) -> Sequence[int]:
        """The members that are processed and not answered; they are gone from now on. Not while members are looked at
        one by one."""
        members = self.block.members
        if not self._xors:
            done: Sequence[int] = range(members) if len(self) == members else list(self)
        else:
            flags = zero_words(self._xors, members) & int.from_bytes(self.is_open, "little")
            done = flagged(flags, members) if flags else ()
        self.leave(done)
        return done

    def _as_array(self) -> array[int]:
        if self._words is None:
            self._words = words_of(self._xors, self.block.members)
        return self._words

    def ack_some(self, values: Iterable[tuple[int, int]]) -> Sequence[int]:
        """XOR values into some members, (member, value); returns those that are processed by it. They are gone then."""
        words, members = self._as_array(), set()
        for member, value in values:
            words[member] ^= value
            members.add(member)
        done = [member for member in sorted(members) if not words[member] and self.is_open[member]]
        self.leave(done)
        return done

    def give_up(self, members: Sequence[int]) -> None:
        """Trees that are tracked are gone."""
        self.leave(members)
        if len(self):
            # So that the others are found processed at a glance.
            words = self._as_array()
            for member in members:
                words[member] = 0

    def add_mask(self, member: int, mask: int) -> None:
        """Note the workers that hold a part of a member."""
        bit = 1
        while bit <= mask:
            if mask & bit:
                self.masks[bit] = self.masks.get(bit, 0) | 1 << 8 * member
            bit <<= 1

    def touched(self, mask: int) -> Sequence[int]:
        """The members that one of the workers of `mask` holds a part of."""
        flags = 0
        for bit, holds in self.masks.items():
            if bit & mask:
                flags |= holds
        return self.open_of(flagged(flags, self.block.members)) if flags else ()

    def mask_of(self, member: int) -> int:
        """The workers that hold a part of a tree."""
        return sum(bit for bit, flags in self.masks.items() if flags >> 8 * member & 1)
