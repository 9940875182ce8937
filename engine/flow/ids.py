"""Tuple ids: random, never 0, never repeated across forked workers.

Guarantees: ids come from the kernel's generator after the fork, never from a seed, so two workers forked from one
parent do not draw the same ids (which would complete trees too early).
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from itertools import count

# Ids drawn at a time: one system call for 8 KiB of random bytes.
_POOL_IDS = 1024
_NO_ID = bytes(8)

ACKER_BITS = 16
"""Low bits of a root id that name its acker: the root alone tells which acker to message."""
ACKER_MASK = (1 << ACKER_BITS) - 1


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

    def take_column(self, count: int) -> bytes:
        """Take several ids at once, as 64-bit words, which need not become objects."""
        while _NO_ID in (words := self._draw(8 * count)):
            pass  # No word is 0 if no eight bytes in a row are.
        return words

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
