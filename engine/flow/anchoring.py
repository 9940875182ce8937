"""The runs to which the rows of a batch are anchored, and the edges that its emits add to their trees.

Guarantees: rows in a row that are anchored to one run and go to one task get one edge; the XOR of all edges of a run
is in `children`, the workers that its rows went to in `masks`.

Pure. Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from squall.engine.flow.batch import Batch
from squall.engine.flow.ids import EdgeIds

Others = Mapping[int, tuple[tuple[int, int], ...]]
"""Run -> (root, edge) of its further trees."""


class Owned:
    """Which run each row belongs to, as series of rows: series i belongs to run `runs[i]` and ends before row
    `ends[i]`. A series may be empty."""

    __slots__ = ("ends", "runs")

    def __init__(self, runs: Sequence[int], ends: Sequence[int]) -> None:
        self.runs = runs
        self.ends = ends

    def where(self, wanted: bytes) -> Owned:
        """The same for those of the rows that are wanted."""
        before = [0, *accumulate(wanted)]
        return Owned(self.runs, [before[end] for end in self.ends])


class Anchoring:
    """The runs of one batch while it is executed, or the new trees of a spout's batch."""

    __slots__ = ("children", "masks", "others", "roots")

    def __init__(self, roots: Sequence[int], others: Others | None = None) -> None:
        self.roots = roots
        self.others = others
        self.children = [0] * len(roots)
        self.masks = [0] * len(roots)

    def enter(self, batch: Batch, owned: Owned, mask: int, ids: EdgeIds) -> None:
        """Give the rows of a batch their runs and edges. `mask`: the bit of the worker that it goes to."""
        starts, runs, begin = batch.starts, [], 0
        for run, end in zip(owned.runs, owned.ends, strict=True):
            if end > begin:
                starts.append(begin)
                runs.append(run)
                begin = end
        roots, children = self.roots, self.children
        batch.roots = [roots[run] for run in runs]
        batch.edges = edges = ids.take(len(runs))
        if 0 in batch.roots:
            batch.loose = True
            for number, root in enumerate(batch.roots):
                if not root:
                    edges[number] = 0
        for run, edge in zip(runs, edges, strict=True):
            children[run] ^= edge
        if mask:
            self._add_mask(runs, mask)
        if self.others:
            belongs = {number: self.others[run] for number, run in enumerate(runs) if run in self.others}
            if belongs:
                batch.others = {
                    number: tuple((other, edges[number]) for other, _ in pairs) for number, pairs in belongs.items()
                }

    def _add_mask(self, runs: Iterable[int], mask: int) -> None:
        masks = self.masks
        for run in runs:
            masks[run] |= mask
