"""The runs to which the rows of a batch are anchored, and the edges that its emits add to their trees.

Guarantees: rows in a row that are anchored to one run and go to one task get one edge; the XOR of all edges of a run
is in `children`, the workers that its rows went to in `masks`.

Pure. Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, compress
from operator import ne, xor
from typing import Any

from squall.engine.flow.batch import Batch, OpenBatch
from squall.engine.flow.blocks import Block, BlockBatch, Flags, flags_of
from squall.engine.flow.ids import EdgeIds

Others = Mapping[int, tuple[tuple[int, int], ...]]
"""Run -> (root, edge) of its further trees."""


class Owned:
    """Which run each row belongs to, as series of rows: series i belongs to run `runs[i]` and ends before row
    `ends[i]`. A series may be empty."""

    __slots__ = ("ends", "runs")

    def __init__(self, runs: Sequence[int], ends: Sequence[int]) -> None:
        """`runs`: a range where each run has one series, in their order."""
        self.runs = runs
        self.ends = ends

    def where(self, wanted: bytes) -> Owned:
        """The same for those of the rows that are wanted."""
        before = [0, *accumulate(wanted)]
        return Owned(self.runs, list(map(before.__getitem__, self.ends)))

    def between(self, begin: int, end: int) -> Owned:
        """The same for the rows from `begin` up to `end`."""
        return Owned(self.runs, [min(max(at, begin), end) - begin for at in self.ends])

    def filled(self) -> tuple[Sequence[int], list[int]]:
        """Run and first row of each series that is not empty."""
        ends = self.ends
        starts = [0, *ends][:-1]
        some = list(map(ne, starts, ends))
        if all(some):
            return self.runs, starts
        return list(compress(self.runs, some)), list(compress(starts, some))


class Anchoring:
    """The runs of one batch while it is executed, or the new trees of a spout's batch."""

    __slots__ = ("_sent", "children", "others", "roots")

    def __init__(self, roots: Sequence[int], others: Others | None = None) -> None:
        self.roots = roots
        self.others = others
        self.children = [0] * len(roots)
        self._sent: dict[int, list[Sequence[int]]] = {}

    def new_batch(self, instead_of: OpenBatch) -> Batch:
        """Make a batch for the task of an open batch."""
        return instead_of.closed(instead_of.source, instead_of.stream, instead_of.target)

    def enter(self, batch: Any, owned: Owned, mask: int, ids: EdgeIds) -> None:
        """Give the rows of a batch their runs and edges. `mask`: the bit of the worker that it goes to."""
        runs, batch.starts = owned.filled()
        batch.edges = edges = ids.take(len(runs))
        self._name_trees(batch, runs, edges)
        children = self.children
        if runs.__class__ is range and len(runs) == len(children):
            self.children = list(map(xor, children, edges))
        else:
            for run, edge in zip(runs, edges, strict=True):
                children[run] ^= edge
        if mask:
            self._sent.setdefault(mask, []).append(runs)

    def _name_trees(self, batch: Batch, runs: Sequence[int], edges: list[int]) -> None:
        """Set the trees of the runs of a batch, and no edge where there is no tree."""
        batch.roots = roots = list(map(self.roots.__getitem__, runs))
        if 0 in roots:
            batch.loose = True
            for number, root in enumerate(roots):
                if not root:
                    edges[number] = 0
        if self.others:
            belongs = {number: self.others[run] for number, run in enumerate(runs) if run in self.others}
            if belongs:
                batch.others = {
                    number: tuple((other, edges[number]) for other, _ in pairs) for number, pairs in belongs.items()
                }

    @property
    def masks(self) -> list[int]:
        """The mask of each run."""
        masks = [0] * len(self.children)
        for mask, sent in self._sent.items():
            for runs in sent:
                for run in runs:
                    masks[run] |= mask
        return masks


class BlockAnchoring(Anchoring):
    """The same for runs that belong to trees of one block."""

    __slots__ = ("_members", "_whole", "block")

    def __init__(self, block: Block, members: Sequence[int], whole: bool) -> None:
        """`members`: the member of each run; `whole`: they are all members, in order."""
        self.block = block
        self._members = members
        self._whole = whole
        self.others = None
        self.children = [0] * len(members)
        self._sent = {}

    def new_batch(self, instead_of: OpenBatch) -> Batch:
        return BlockBatch(instead_of.source, instead_of.stream, instead_of.target)

    def _name_trees(self, batch: Any, runs: Sequence[int], edges: list[int]) -> None:
        every = self._whole and runs.__class__ is range and len(runs) == len(self._members)
        batch.belongs_to(self.block, runs if self._whole else list(map(self._members.__getitem__, runs)), every)

    def by_member(self, words: Sequence[int]) -> Sequence[int]:
        """A word of each run as a word of each member: their XOR where a member has several runs."""
        if self._whole:
            return words
        found = [0] * self.block.members
        for member, word in zip(self._members, words, strict=True):
            found[member] ^= word
        return found

    def flags(self) -> dict[int, Flags]:
        """Bit of a worker -> the members with new tuples for it."""
        members, count = self._members, self.block.members
        return {
            mask: flags_of((members[run] for runs in sent for run in runs), count) for mask, sent in self._sent.items()
        }


def anchoring_of(batch: Batch) -> Anchoring:
    """Of the runs of a batch that is about to be executed."""
    if isinstance(batch, BlockBatch):
        return BlockAnchoring(batch.block, batch.members, batch.whole)
    return Anchoring(batch.roots, batch.others)
