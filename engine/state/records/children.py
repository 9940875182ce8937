"""The identities of what is emitted from the rows of one batch.

Guarantees: the emits of a row are numbered in their order, over all calls and streams, whatever else is in the batch.

Pure. Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.engine.api.columns import ColumnBatch
from squall.engine.state.records.lineage import Lineage, loose_identity


class Children:
    """Of one batch."""

    __slots__ = ("_first", "_identities", "_lineage", "_used")

    def __init__(self, lineage: Lineage, identities: Sequence[int], first: int) -> None:
        """`first`: the digit of the first emit (`Lineage.first`)."""
        self._lineage, self._identities, self._first = lineage, identities, first
        self._used: list[int] = []
        """Emits of each row so far; empty if there are none."""

    @classmethod
    def of_batch(cls, lineage: Lineage, batch: ColumnBatch, identities: Sequence[int] | None, index: int) -> Children:
        """Of a plain batch in the task of this index. `identities`: None of ticks: what these emit is not repeated."""
        if identities is None:
            return cls(lineage, [loose_identity(lineage) for _ in range(len(batch))], 1)
        return cls(lineage, identities, lineage.first(batch._source, index))

    def drop(self) -> None:
        """Begin the numbers anew."""
        self._used = []

    def of(self, parents: Sequence[int], in_order: bool) -> list[int]:
        """The identities of emits from these rows; `in_order`: all emits of a row are next to one another."""
        identities, used, lineage = self._identities, self._used, self._lineage
        if not used and in_order:
            counts = [0] * len(identities)
            for parent in parents:
                counts[parent] += 1
            self._used = counts
            return lineage.children_of(lineage.bases_of(identities, self._first), counts)
        if not used:
            used = self._used = [0] * len(identities)
        firsts, step, made = lineage.bases_of(identities, self._first), lineage.step, []
        for parent in parents:
            made.append(firsts[parent] + used[parent] * step)
            used[parent] += 1
        if max(used, default=0) > lineage.most:
            raise lineage.too_many(max(used))
        return made
