"""The identities of what is emitted from the rows of one batch.

Guarantees: the emits of a row are numbered in their order, over all calls and streams, whatever else is in the batch.

Pure. Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count, repeat
from typing import Any

from squall.engine.foreign.given_columns import values_of
from squall.engine.state.lineage import Lineage


class Children:
    """Of one batch."""

    __slots__ = ("_base", "_first", "_identities", "_lineage", "_step", "_used")

    def __init__(self, lineage: Lineage, identities: Sequence[int], first: int) -> None:
        """`first`: the digit of the first emit (`Lineage.first`)."""
        self._lineage, self._identities, self._first = lineage, identities, first
        self._step = lineage.step
        self._base = 0
        self._used: list[int] = []
        """Emits of each row so far; empty if there are none."""

    def drop(self) -> None:
        """Begin the numbers anew."""
        self._used = []

    def next_of(self, row: int, made: int) -> int:
        """The identity of an emit from a row, after `made` others, of rows that come one after the other."""
        if not made:
            [self._base] = self._lineage.bases_of([self._identities[row]], self._first)
        elif made >= self._lineage.most:
            raise self._lineage.too_many(made + 1)
        return self._base + made * self._step

    def rows(self, counts: Any, parents: Any, given: Sequence[int], rows: int) -> list[int]:
        """The row that each of `rows` emits is made from. `given`: the rows of the batch that the bolt sees, if these
        are not all."""
        if parents is not None:
            made = list(values_of(parents))
        elif counts is not None:
            made = list(chain.from_iterable(map(repeat, count(), map(int, values_of(counts)))))
        else:
            made = list(range(rows))
        return [given[row] for row in made] if given else made

    def of(self, parents: Sequence[int], in_order: bool) -> list[int]:
        """The identities of emits from these rows; `in_order`: all emits of a row are next to one another."""
        identities, used = self._identities, self._used
        if not used and in_order:
            counts = [0] * len(identities)
            for parent in parents:
                counts[parent] += 1
            self._used = counts
            return self._lineage.children_of(self._lineage.bases_of(identities, self._first), counts)
        if not used:
            used = self._used = [0] * len(identities)
        firsts, made = list(self._lineage.bases_of(identities, self._first)), []
        for parent in parents:
            made.append(firsts[parent] + used[parent] * self._step)
            used[parent] += 1
        if max(used, default=0) > self._lineage.most:
            raise self._lineage.too_many(max(used))
        return made
