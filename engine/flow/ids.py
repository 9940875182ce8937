"""Tuple ids: random, never 0, never repeated across forked workers.

Guarantees: ids come from the kernel's generator after the fork, never from a seed, so that two workers forked from one
parent cannot draw the same (which would complete trees that are not complete).
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from itertools import count

# 8 KiB of random bytes at a time: one system call per 1024 ids.
_POOL_IDS = 1024

ACKER_BITS = 16
"""The low bits of a root id name its acker, so that anyone who holds a root knows whom to tell."""
ACKER_MASK = (1 << ACKER_BITS) - 1


class EdgeIds:
    """A source of random non-zero 64-bit edge ids. One thread."""

    __slots__ = ("_draw", "pool")

    def __init__(self, draw: Callable[[int], bytes] = os.urandom) -> None:
        self._draw = draw
        self.pool: list[int] = []

    def next(self) -> int:
        pool = self.pool
        if not pool:
            self.refill()
        return pool.pop()

    def refill(self) -> None:
        """Draw more. Kept apart so that the tuple path can pop from `pool` itself."""
        pool = self.pool
        while not pool:
            pool.extend(filter(None, array("Q", self._draw(8 * _POOL_IDS))))


def root_ids(acker_index: int, draw: Callable[[int], bytes] = os.urandom) -> Iterator[int]:
    """An endless supply of roots tracked by acker `acker_index`: a counter from a random start.

    A root needs to be unique, not random, so counting (30 ns) does where drawing would cost twice as much. Two
    incarnations collide only if their random 47-bit starts lie within as many roots as they emit.
    """
    start = int.from_bytes(draw(8), "little") >> (ACKER_BITS + 1)
    return count((start + 1) << ACKER_BITS | acker_index, 1 << ACKER_BITS)
