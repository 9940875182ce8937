"""A batch: consecutive tuples of one stream from one task to another, the unit that is queued and transported.

Its tuples are grouped in runs (see `engine.tuple`): run i covers rows `starts[i]` up to `starts[i + 1]`, belongs to the
tree `roots[i]` (0 = untracked) and is tracked under `edges[i]`. A run that belongs to several trees has its further
(root, edge) pairs in `others[i]`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any


class Batch:
    """A batch on its way; one thread owns it at a time."""

    __slots__ = ("edges", "others", "roots", "rows", "source", "starts", "stream", "target")

    def __init__(self, source: int, stream: str, target: int) -> None:
        self.source = source
        """Task that emitted the tuples."""
        self.stream = stream
        self.target = target
        """Task that is to receive them."""
        self.rows: list[tuple[Any, ...]] = []
        self.starts: list[int] = []
        self.roots: list[int] = []
        self.edges: list[int] = []
        self.others: dict[int, tuple[tuple[int, int], ...]] | None = None

    @classmethod
    def untracked(cls, source: int, stream: str, target: int, values: tuple[Any, ...]) -> Batch:
        """One tuple that belongs to no tree."""
        batch = Batch(source, stream, target)
        batch.rows, batch.starts, batch.roots, batch.edges = [values], [0], [0], [0]
        return batch

    def split(self, count: int) -> Batch:
        """Take out the first `count` rows, fewer than there are; this batch keeps the rest.

        A run that this cuts in two is acked with its second part: the first goes under edge 0, so that acking it tells
        of what was emitted from it and leaves the tree open.
        """
        starts, others = self.starts, self.others
        runs = bisect_left(starts, count)
        kept = runs if runs < len(starts) and starts[runs] == count else runs - 1
        head = Batch(self.source, self.stream, self.target)
        head.rows, self.rows = self.rows[:count], self.rows[count:]
        head.starts, self.starts = starts[:runs], [max(0, start - count) for start in starts[kept:]]
        head.roots, self.roots = self.roots[:runs], self.roots[kept:]
        head.edges, self.edges = self.edges[:runs], self.edges[kept:]
        if others is not None:
            head.others = {run: pairs for run, pairs in others.items() if run < runs}
            self.others = {run - kept: pairs for run, pairs in others.items() if run >= kept}
        if kept < runs:
            head.edges[kept] = 0
            if head.others and kept in head.others:
                head.others[kept] = tuple((root, 0) for root, _ in head.others[kept])
        return head


class OpenBatch(Batch):
    """What one task has emitted to another since the last flush. Lives as long as the sending task, which is the only
    one to touch it; `take` moves the content out."""

    __slots__ = ("bits", "last", "mask")

    def __init__(self, source: int, stream: str, target: int, bits: dict[int, int]) -> None:
        super().__init__(source, stream, target)
        self.bits = bits
        """Target task -> bit of its worker's present incarnation, 0 if it is in this worker. Shared, kept current."""
        self.mask = 0
        """The target's bit when the batch was begun."""
        self.last: object = None
        """Marks the anchor of the last run: more tuples anchored to it continue the run. None while empty."""

    def take(self) -> Batch:
        """The content as a batch; this one is empty afterwards."""
        batch = Batch(self.source, self.stream, self.target)
        batch.rows, batch.starts, batch.roots, batch.edges = self.rows, self.starts, self.roots, self.edges
        batch.others, self.others = self.others, None
        self.rows, self.starts, self.roots, self.edges = [], [], [], []
        self.last = None
        return batch
