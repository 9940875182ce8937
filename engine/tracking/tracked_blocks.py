"""The blocks that an acker tracks: an XOR for each of their trees, in columns.

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

from squall.engine.flow.ids import ACKER_BITS, Block
from squall.engine.flow.member_columns import Flags, Words, column_of, flagged, words_of, zero_words

_MOST_ROTATIONS = 3


class TrackedBlock:
    """One block."""

    __slots__ = ("_left", "_words", "_xors", "age", "block", "is_open", "masks", "spout_task")

    def __init__(self, block: Block, xors: Words, spout_task: int, masks: dict[int, Flags]) -> None:
        self.block = block
        self.spout_task = spout_task
        self._xors = xors
        """The XOR of each member, a word each; words of members that are gone are meaningless."""
        self._words: array[int] | None = None
        """The same as an array, in place of `_xors`, while members are looked at one by one."""
        self.is_open = bytearray(b"\1" * block.members)
        """1 for each member that is tracked, 0 for those that are gone: answered, or given up."""
        self._left = block.members
        self.masks = masks
        """Bit of a worker's incarnation -> the members that hold, or held, a part there."""
        self.age = 0

    def __len__(self) -> int:
        return self._left

    def __contains__(self, member: int) -> bool:
        """Return True if this member is tracked, and not gone."""
        return 0 <= member < self.block.members and bool(self.is_open[member])

    def __iter__(self) -> Iterator[int]:
        """The members that are tracked."""
        return compress(range(self.block.members), bytes(self.is_open))

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
            found: Sequence[int] = range(members) if self._left == members else list(self)
        else:
            done = zero_words(self._xors, members) & int.from_bytes(self.is_open, "little")
            if not done:
                return ()
            found = flagged(done, members)
        self._leave(found)
        return found

    def _leave(self, members: Sequence[int]) -> None:
        """Members that are tracked are gone from now on."""
        self._left -= len(members)
        if self._left:
            open_ = self.is_open
            for member in members:
                open_[member] = 0
        else:
            self.is_open = bytearray(self.block.members)

    def _as_array(self) -> array[int]:
        if self._words is None:
            self._words = words_of(self._xors, self.block.members)
        return self._words

    def ack_some(self, values: Iterable[tuple[int, int]]) -> list[int]:
        """XOR values into some members, (member, value); returns those that are processed by it. They are gone then."""
        words, members = self._as_array(), set()
        for member, value in values:
            words[member] ^= value
            members.add(member)
        finished = [member for member in sorted(members) if not words[member] and self.is_open[member]]
        if finished:
            self.give_up_many(finished)
        return finished

    def add_mask(self, member: int, mask: int) -> None:
        """Note the workers that hold a part of a member."""
        bit = 1
        while bit <= mask:
            if mask & bit:
                self.masks[bit] = self.masks.get(bit, 0) | 1 << 8 * member
            bit <<= 1

    def give_up(self, member: int) -> None:
        """A tree that is tracked is gone."""
        self.give_up_many((member,))

    def give_up_many(self, members: Sequence[int]) -> None:
        """Trees that are tracked are gone."""
        self._leave(members)
        if self._left:
            # So that the others are found processed at a glance.
            words = self._as_array()
            for member in members:
                words[member] = 0

    def touched(self, mask: int) -> list[int]:
        """The members that one of the workers of `mask` holds a part of."""
        flags = 0
        if not self._left:
            return []
        for bit, its in self.masks.items():
            if bit & mask:
                flags |= its
        return list(filter(self.is_open.__getitem__, flagged(flags, self.block.members))) if flags else []

    def mask_of(self, member: int) -> int:
        """The workers that hold a part of a tree."""
        found = 0
        for bit, flags in self.masks.items():
            if flags >> 8 * member & 1:
                found |= bit
        return found


class Blocks:
    """The blocks of one acker."""

    __slots__ = ("_bases", "_by_base")

    def __init__(self) -> None:
        self._by_base: dict[int, TrackedBlock] = {}
        self._bases: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._by_base)

    def __iter__(self) -> Iterator[TrackedBlock]:
        return iter(list(self._by_base.values()))

    def __len__(self) -> int:
        """Trees being tracked."""
        return sum(map(len, self._by_base.values()))

    def begin(self, tracked: TrackedBlock) -> None:
        self._by_base[tracked.block.base] = tracked
        insort(self._bases, tracked.block.base)

    def get(self, base: int) -> TrackedBlock | None:
        """The block with this first root, as long as one of its trees is tracked."""
        return self._by_base.get(base)

    def find(self, root: int) -> tuple[TrackedBlock, int] | None:
        """The block and the member of a tree that is tracked."""
        tracked = self._around(root)
        member = -1 if tracked is None else tracked.block.member_of(root)
        return None if tracked is None or member not in tracked else (tracked, member)

    def _around(self, root: int) -> TrackedBlock | None:
        """The last block that begins before this root."""
        at = bisect_right(self._bases, root) - 1
        return None if at < 0 else self._by_base[self._bases[at]]

    def share_out(
        self, acks: Iterable[tuple[int, int]]
    ) -> tuple[list[tuple[TrackedBlock, list[tuple[int, int]]]], list[tuple[int, int]]]:
        """Share out (root, value) among the blocks, as (member, value); the rest are of no tree that is tracked in
        one."""
        shares: list[tuple[TrackedBlock, list[tuple[int, int]]]] = []
        rest: list[tuple[int, int]] = []
        base = end = 0
        for root, value in acks:
            if not base <= root < end:
                tracked = self._around(root)
                if tracked is None:
                    rest.append((root, value))
                    continue
                base, is_open = tracked.block.base, tracked.is_open
                end = base + (len(is_open) << ACKER_BITS)
                its: list[tuple[int, int]] = []
                shares.append((tracked, its))
            member = root - base >> ACKER_BITS
            if member < len(is_open) and is_open[member]:
                its.append((member, value))
            else:
                rest.append((root, value))
        return shares, rest

    def drop_if_done(self, tracked: TrackedBlock) -> None:
        """Forget a block none of whose trees is tracked any more."""
        if not len(tracked):
            self._drop(tracked)

    def _drop(self, tracked: TrackedBlock) -> None:
        base = tracked.block.base
        if self._by_base.pop(base, None) is not None:
            self._bases.remove(base)

    def rotate(self) -> None:
        """Drop blocks that remain unanswered at the third rotation."""
        for tracked in self:
            tracked.age += 1
            if tracked.age >= _MOST_ROTATIONS:
                self._drop(tracked)
