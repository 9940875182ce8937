"""Blocks: the trees of one batch of a spout, which are tracked together for as long as they fare alike.

Roots are a counter, so a block is its first root and their number; its trees, the *members*, are numbered from 0. What
acks say of a block is a column with a word for each member, and one XOR of two columns acks all of its trees. Each tree
keeps an XOR of its own, so nothing is lost by it: any of them can be acked, failed or timed out alone.

Guarantees: however acks of a block are merged, its acker computes the same. Pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from squall.engine.flow.batch import Batch
from squall.engine.flow.ids import ACKER_BITS

MIN_MEMBERS, MAX_MEMBERS = 4, 1 << 16
"""Fewer trees are not worth a block; the number of a member takes two bytes."""
Flags = int
"""One byte for each member, 1 or 0, the first one lowest."""


class Block(NamedTuple):
    """The trees `base`, `base + (1 << ACKER_BITS)` and so on."""

    base: int
    members: int

    def roots(self, members: Iterable[int]) -> list[int]:
        """The roots of the trees in these members."""
        base = self.base
        return [base + (member << ACKER_BITS) for member in members]

    def member_of(self, root: int) -> int:
        """The member of one of its trees."""
        return root - self.base >> ACKER_BITS


def block_of(roots: Sequence[int]) -> Block | None:
    """The block of roots that were drawn in a row; None if they are no block."""
    count = len(roots)
    if MIN_MEMBERS <= count <= MAX_MEMBERS and roots[-1] - roots[0] == count - 1 << ACKER_BITS:
        return Block(roots[0], count)
    return None


def column_of(words: Sequence[int]) -> int:
    """Words of 64 bits as one number, the first one lowest."""
    return int.from_bytes(array("Q", words).tobytes(), "little")


def flags_of(members: Iterable[int], count: int) -> Flags:
    """Flags with 1 for these of `count` members."""
    flags = bytearray(count)
    for member in members:
        flags[member] = 1
    return int.from_bytes(flags, "little")


def flagged(flags: Flags, count: int) -> list[int]:
    """The members whose flag is 1."""
    return [member for member, flag in enumerate(flags.to_bytes(count, "little")) if flag]


def all_flags(count: int) -> Flags:
    """Flags with 1 for each of `count` members."""
    return int.from_bytes(b"\1" * count, "little")


class BlockAcks:
    """Acks of one block on their way: the XOR of each member, and the members whose tuples went to each worker."""

    __slots__ = ("masks", "members", "xors")

    def __init__(self, members: int, xors: int = 0, masks: dict[int, Flags] | None = None) -> None:
        self.members = members
        self.xors = xors
        """A word for each member: see `column_of`."""
        self.masks: dict[int, Flags] = {} if masks is None else masks
        """Bit of a worker's incarnation -> the members with new tuples for it."""

    def merge(self, xors: int, masks: dict[int, Flags]) -> None:
        """Add more acks."""
        self.xors ^= xors
        for bit, flags in masks.items():
            self.masks[bit] = self.masks.get(bit, 0) | flags


class BlockBatch(Batch):
    """A batch whose tuples all belong to trees of one block, and to no others."""

    __slots__ = ("_members", "_roots", "block", "whole")

    block: Block
    whole: bool
    """Run i belongs to member i, and there is one for each member."""
    _members: Sequence[int] | None
    _roots: list[int] | None
    """Members and roots are made from each other when they are asked for."""

    @property
    def members(self) -> Sequence[int]:
        """The member of each run."""
        if self._members is None:
            block = self.block
            self._members = [block.member_of(root) for root in self._roots or ()]
        return self._members

    def belongs_to(self, block: Block, members: Sequence[int], whole: bool) -> None:
        """Set the block, and the member of each run."""
        self.block, self.whole = block, whole
        self._members, self._roots = members, None

    @property
    def roots(self) -> list[int]:
        if self._roots is None:
            self._roots = self.block.roots(self._members or ())
        return self._roots

    @roots.setter
    def roots(self, roots: list[int]) -> None:
        self._roots, self._members, self.whole = roots, None, False

    def split(self, count: int, new_edge: Callable[[], int]) -> Batch:
        head = super().split(count, new_edge)
        if isinstance(head, BlockBatch):
            head.block = self.block
        return head

    def take_out(self, indices: Collection[int]) -> dict[int, Batch]:
        taken = super().take_out(indices)
        for one in taken.values():
            if isinstance(one, BlockBatch):
                one.block = self.block
        return taken
