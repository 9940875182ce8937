"""The numbers of trees and of tuples: roots, edges, and blocks of roots.

A *block* is the trees that a spout emits in one turn, which are tracked together for as long as they fare alike. Roots
are a counter, so it is its first root and their number; its trees, the *members*, are numbered from 0.

Guarantees: edges are random, never 0, and never repeated across forked workers. They come from the kernel's generator
after the fork, never from a seed, so two workers forked from one parent do not draw the same ids (which would complete
trees too early). Each tree of a block keeps an XOR of its own, so any of them can be acked, failed or timed out alone.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from squall.engine.flow.member_columns import WORD_BYTES, Words

# Ids drawn at a time: one system call for 8 KiB of random bytes.
_POOL_IDS = 1024
_NO_ID = bytes(WORD_BYTES)

ACKER_BITS = 16
"""Low bits of a root id that name its acker: the root alone tells which acker to message."""
ACKER_MASK = (1 << ACKER_BITS) - 1
MIN_MEMBERS, MAX_MEMBERS = 16, 1 << 16
"""Fewer trees are not worth a block, which costs a turn some 80 us; the number of a member takes two bytes."""
ALONE = (0,)
"""The members of a tree that is tracked by itself, as a block of one whose first root is the tree's."""


class Block(NamedTuple):
    """The trees `base`, `base + (1 << ACKER_BITS)` and so on."""

    base: int
    members: int

    def roots(self, members: Iterable[int]) -> Sequence[int]:
        """The roots of the trees in these members; those of neighbours need not become objects."""
        base = self.base
        if isinstance(members, range):
            return range(base + (members.start << ACKER_BITS), base + (members.stop << ACKER_BITS), 1 << ACKER_BITS)
        return [base + (member << ACKER_BITS) for member in members]


def block_of(roots: Sequence[int], least: int = MIN_MEMBERS) -> Block | None:
    """The block of roots that were drawn in a row; None if they are no block, or fewer than `least`."""
    count = len(roots)
    if least <= count <= MAX_MEMBERS and roots[-1] - roots[0] == count - 1 << ACKER_BITS:
        return Block(roots[0], count)
    return None


class EdgeIds:
    """A source of random non-zero 64-bit edge ids. Thread: its outbox's."""

    __slots__ = ("_draw", "pool")

    def __init__(self, draw: Callable[[int], bytes] = os.urandom) -> None:
        self._draw = draw
        self.pool: list[int] = []

    def next(self) -> int:
        pool = self.pool
        if not pool:
            self.refill()
        return pool.pop()

    def take(self, count: int) -> list[int]:
        """Take several ids at once."""
        pool = self.pool
        while len(pool) < count:
            taken, pool[:] = pool[:], []
            self.refill()
            pool += taken
        ids = pool[len(pool) - count :]
        del pool[len(pool) - count :]
        return ids

    def take_column(self, count: int) -> Words:
        """Take several ids at once, as words, which need not become objects."""
        while _NO_ID in (words := self._draw(WORD_BYTES * count)):
            pass  # No word is 0 if no eight bytes in a row are.
        return int.from_bytes(words, "little")

    def refill(self) -> None:
        """Draw more ids. A method of its own, so that the tuple path can pop from `pool` directly."""
        pool = self.pool
        while not pool:
            pool.extend(filter(None, array("Q", self._draw(8 * _POOL_IDS))))


def root_ids(acker_index: int, draw: Callable[[int], bytes] = os.urandom) -> Iterator[int]:
    """Yield roots tracked by acker `acker_index` without end: a counter from a random start.

    A root needs to be unique, not random, so counting (30 ns) does where drawing would cost twice as much. Two
    incarnations collide only if their random 47-bit starts lie within as many roots as they emit.
    """
    start = int.from_bytes(draw(8), "little") >> (ACKER_BITS + 1)
    return count((start + 1) << ACKER_BITS | acker_index, 1 << ACKER_BITS)
