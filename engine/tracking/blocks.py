"""The blocks that an acker tracks: an XOR for each of their trees, in columns.

Guarantees: as of single trees (`engine.tracking.acker`). A tree that has been answered, or given up, stays so: what
comes for it later changes nothing.

Relies on: blocks beginning in the acker's own worker, before any ack of theirs can come.

Pure: no clock, no I/O. Thread: the worker's loop.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence

from squall.engine.flow.blocks import WORD_BYTES, Block, Flags, column_of, flagged, words_of

_NO_WORD = bytes(WORD_BYTES)
_MOST_ROTATIONS = 3


class TrackedBlock:
    """One block."""

    __slots__ = ("_left", "_words", "_xors", "age", "block", "gone", "masks", "spout_task")

    def __init__(self, block: Block, xors: int, spout_task: int, masks: dict[int, Flags]) -> None:
        self.block = block
        self.spout_task = spout_task
        self._xors = xors
        """The XOR of each member, a word each; 0 of those that are gone."""
        self._words: array[int] | None = None
        """The same as an array, in place of `_xors`, while members are looked at one by one."""
        self.gone: set[int] = set()
        """Members that were answered or given up, until all are."""
        self._left = block.members
        self.masks = masks
        """Bit of a worker's incarnation -> the members that hold, or held, a part there."""
        self.age = 0

    def __len__(self) -> int:
        return self._left

    def ack(self, xors: int) -> Sequence[int]:
        """XOR a word into each member; returns the members that are processed by it."""
        if self._words is not None:
            self._xors, self._words = column_of(self._words), None
        self._xors ^= xors
        if self.gone:
            words = self._as_array()
            for member in self.gone:
                words[member] = 0
        return self.finished()

    def finished(self) -> Sequence[int]:
        """The members that are processed and not answered; they are gone from now on."""
        gone, members = self.gone, self.block.members
        if not gone and self._words is None:
            if not self._xors:
                self._left = 0
                return range(members)
            if _NO_WORD not in self._xors.to_bytes(WORD_BYTES * members, "little"):
                return ()
        words = self._as_array()
        if words.count(0) == len(gone):
            return ()
        found = [member for member, word in enumerate(words) if not word and member not in gone]
        gone.update(found)
        self._left -= len(found)
        return found

    def _as_array(self) -> array[int]:
        if self._words is None:
            self._words = words_of(self._xors, self.block.members)
        return self._words

    def ack_one(self, member: int, value: int) -> bool:
        """XOR a value into a member that is tracked; whether it is processed by it. It is gone then."""
        words = self._as_array()
        words[member] ^= value
        if words[member]:
            return False
        self.give_up(member)
        return True

    def give_up(self, member: int) -> None:
        """A tree is gone."""
        self._as_array()[member] = 0
        self.gone.add(member)
        self._left -= 1

    def give_up_many(self, members: Sequence[int]) -> None:
        """Trees that are tracked are gone."""
        self._left -= len(members)
        if self._left:
            words = self._as_array()
            for member in members:
                words[member] = 0
            self.gone.update(members)

    def touched(self, mask: int) -> list[int]:
        """The members that one of the workers of `mask` holds a part of."""
        flags = 0
        if not self._left:
            return []
        for bit, its in self.masks.items():
            if bit & mask:
                flags |= its
        members = flagged(flags, self.block.members) if flags else []
        return [member for member in members if member not in self.gone] if self.gone else members

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
        at = bisect_right(self._bases, root) - 1
        if at < 0:
            return None
        tracked = self._by_base[self._bases[at]]
        member = tracked.block.member_of(root)
        is_its = len(tracked) and member < tracked.block.members and member not in tracked.gone
        return (tracked, member) if is_its else None

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
