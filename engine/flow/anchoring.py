"""The runs to which the rows of a batch are anchored, the edges that its emits add to their trees, and acks of trees.

Guarantees: rows in a row that are anchored to one run and go to one task get one edge; the XOR of all edges of a run
is in `of_runs`, with the workers that its rows went to. However the acks of a tree are merged, and in whatever order,
its acker computes the same.

Pure. Thread: the task's; `Acks` that of their outbox.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat
from operator import sub
from typing import Any

from squall.engine.flow.batch import Batch, BlockBatch, OpenBatch
from squall.engine.flow.ids import Block, EdgeIds
from squall.engine.flow.member_columns import (
    Flags,
    RowCounts,
    Words,
    column_of,
    flagged,
    flags_at,
    only_flagged,
    words_at,
    words_of,
)

_MOST_EMPTY = 4
"""Runs are kept as columns if at least one in so many has rows."""

Others = Mapping[int, tuple[tuple[int, int], ...]]
"""Run -> (root, edge) of its further trees."""


class Owned:
    """Which run each row belongs to, as series of rows: series i has the next `rows.counts[i]` rows and belongs to run
    `runs[i]`."""

    __slots__ = ("rows", "runs")

    def __init__(self, runs: Sequence[int], rows: RowCounts) -> None:
        """`runs`: a range where each run has one series, in their order."""
        self.runs = runs
        self.rows = rows

    @classmethod
    def noted(cls, owners: Sequence[int], starts: Sequence[int], rows: int, runs: int) -> Owned:
        """Build it from noted starts: the rows from `starts[i]` up to the next start belong to run `owners[i]`, and
        `owners` ascend. It has a series for each of the `runs`."""
        count = len(owners)
        if rows == runs == count:
            return cls(range(runs), RowCounts.single(runs))
        ends = [*starts[1:], rows]
        if count == runs:
            return cls(range(runs), RowCounts(ends=ends))
        counts = dict(zip(owners, map(sub, ends, starts), strict=True))
        return cls(range(runs), RowCounts(list(map(counts.get, range(runs), repeat(0)))))

    def where(self, wanted: bytes) -> Owned:
        """The same for those of the rows that are wanted."""
        return Owned(self.runs, self.rows.where(wanted))

    def without(self, others: Owned) -> Owned:
        """The same for those of the rows that are not among these others."""
        return Owned(self.runs, self.rows.without(others.rows))

    def filled(self) -> tuple[Sequence[int], list[int]]:
        """Run and first row of each series that is not empty."""
        runs, starts, flags = self.runs, self.rows.starts, self.rows.flags
        if 0 not in flags:
            return runs, starts
        return list(compress(runs, flags)), list(compress(starts, flags))


class Anchoring:
    """The runs of one batch while it is executed, or the new trees of a spout's batch."""

    __slots__ = ("_sent", "children", "others", "roots")

    def __init__(self, roots: Sequence[int], others: Others | None = None) -> None:
        self.roots = roots
        self.others = others
        self.children = [0] * len(roots)
        self._sent: dict[int, list[Sequence[int]]] = {}

    def settle(self, batch: OpenBatch, ids: EdgeIds) -> Batch | None:
        """Draw an edge for each run of an open batch that has none. If these runs must form a batch of their own, move
        them there and return it."""
        roots, owners = self.roots, batch.owners
        if len(owners) == 1 and batch.roots and not (batch.roots[-1] or roots[owners[0]]):
            batch.starts.pop()  # it goes on with the tuples of no tree before it
        else:
            self._extend(batch, owners, batch.mask, ids)
        return None

    def batch_of(self, rows: Any, owned: Owned, instead_of: OpenBatch, mask: int, ids: EdgeIds) -> Batch:
        """Make a batch of rows for the task of an open batch, with an edge for each run. `mask`: the bit of the worker
        that it goes to."""
        batch = Batch(instead_of.source, instead_of.stream, instead_of.target)
        batch.rows = rows
        runs, batch.starts = owned.filled()
        self._extend(batch, runs, mask, ids)
        return batch

    def _extend(self, batch: Batch, runs: Sequence[int], mask: int, ids: EdgeIds) -> None:
        """Add these runs to those that a batch has, with an edge each."""
        roots, children, others = self.roots, self.children, self.others
        for run in runs:
            root = roots[run]
            edge = ids.next() if root else 0
            if root and others and run in others:
                batch.others = batch.others or {}
                batch.others[len(batch.roots)] = tuple((other, edge) for other, _ in others[run])
            batch.roots.append(root)
            batch.edges.append(edge)
            children[run] ^= edge
        if mask:
            self._sent.setdefault(mask, []).append(runs)

    def leave_open(self, run: int, ids: EdgeIds) -> None:
        """Add an edge that no tuple has, so that a tree without any tuple does not count as processed."""
        self.children[run] ^= ids.next()

    def trees_of(self, run: int) -> Sequence[int]:
        """Roots of the trees that a run belongs to; 0 stands for none."""
        return self.roots[run], *(other for other, _ in (self.others or {}).get(run, ()))

    def of_runs(self) -> tuple[Sequence[int], list[int]]:
        """Of each run: the XOR of the edges of its new tuples, and the mask of the workers that these went to."""
        masks = [0] * len(self.children)
        for mask, sent in self._sent.items():
            for runs in sent:
                for run in runs:
                    masks[run] |= mask
        return self.children, masks


class BlockAnchoring(Anchoring):
    """The same for runs that belong to trees of one block."""

    __slots__ = ("_flags", "_members", "_xors", "block")

    def __init__(self, block: Block, members: Sequence[int]) -> None:
        """`members`: the one that each run belongs to; a range, if they are neighbours."""
        self.block = block
        self._members = members
        self._xors: Words = 0
        """Of the edges of each run's new tuples."""
        self._flags: dict[int, Flags] = {}
        """Bit of a worker -> the runs with new tuples for it."""

    def settle(self, batch: OpenBatch, ids: EdgeIds) -> Batch | None:
        owners, mask, count = batch.owners, batch.mask, len(self._members)
        if len(owners) * _MOST_EMPTY >= count:
            rows, starts = batch.take_owned()
            return self.batch_of(rows, Owned.noted(owners, starts, len(rows), count), batch, mask, ids)
        edges = ids.take(len(owners))
        batch.roots += self.block.roots(self._members[run] for run in owners)
        batch.edges += edges
        self._add(owners, column_of(edges), b"\1" * len(owners), mask)
        return None

    def batch_of(self, rows: Any, owned: Owned, instead_of: OpenBatch, mask: int, ids: EdgeIds) -> Batch:
        runs, run_rows, flags, members = owned.runs, owned.rows, owned.rows.flags, self._members
        begin, end = flags.find(1), flags.rfind(1) + 1
        if type(runs) is range and flags.count(1) * _MOST_EMPTY >= end - begin:
            runs, run_rows, flags = runs[begin:end], run_rows.part(begin, end), flags[begin:end]
            members = members[begin:end]
        else:
            runs, starts = owned.filled()
            run_rows, flags = RowCounts(ends=[*starts[1:], len(rows)]), b"\1" * len(runs)
            members = list(map(members.__getitem__, runs))
        words = ids.take_column(len(runs))
        if 0 in flags:
            words = only_flagged(words, flags)
        self._add(runs, words, flags, mask)
        batch = BlockBatch(instead_of, self.block, members, run_rows, words)
        batch.rows = rows
        return batch

    def _add(self, runs: Sequence[int], words: Words, flags: bytes, mask: int) -> None:
        """Add an edge to each of these runs, and the worker of `mask` to those that are flagged."""
        count = len(self._members)
        self._xors ^= words_at(runs, words, count)
        if mask:
            sent = flags_at(runs, int.from_bytes(flags, "little"), count)
            self._flags[mask] = self._flags.get(mask, 0) | sent

    def leave_open(self, run: int, ids: EdgeIds) -> None:
        self._add((run,), ids.next(), b"\1", 0)

    def trees_of(self, run: int) -> Sequence[int]:
        return self.block.roots((self._members[run],))

    def of_runs(self) -> tuple[Sequence[int], list[int]]:
        count = len(self._members)
        masks = [0] * count
        for mask, flags in self._flags.items():
            for run in flagged(flags, count):
                masks[run] |= mask
        return words_of(self._xors, count), masks

    def new_edges(self) -> Words:
        """The XOR of the edges of each member's new tuples."""
        return words_at(self._members, self._xors, self.block.members)

    def acks_of(self, batch: BlockBatch, but: Collection[int]) -> Words:
        """What acks the runs of the batch at hand, those in `but` excepted: a word for each member."""
        words = batch.words ^ self._xors
        if but:
            kept = bytearray(b"\1") * len(self._members)
            for run in but:
                kept[run] = 0
            words = only_flagged(words, kept)
        return words_at(self._members, words, self.block.members)

    def flags(self) -> dict[int, Flags]:
        """Bit of a worker -> the members with new tuples for it."""
        members, count = self._members, self.block.members
        return {mask: flags_at(members, flags, count) for mask, flags in self._flags.items()}


def anchoring_of(batch: Batch) -> Anchoring:
    """Of the runs of a batch that is about to be executed."""
    if isinstance(batch, BlockBatch):
        return BlockAnchoring(batch.block, batch.members)
    return Anchoring(batch.roots, batch.others)


@dataclass(slots=True)
class BlockAcks:
    """Acks of one block: the XOR of each member, and the members whose tuples went to each worker."""

    members: int
    xors: Words = 0
    masks: dict[int, Flags] = field(default_factory=dict)
    """Bit of a worker's incarnation -> the members with new tuples for it."""

    def merge(self, xors: Words, masks: dict[int, Flags]) -> None:
        """Add more acks."""
        self.xors ^= xors
        for bit, flags in masks.items():
            self.masks[bit] = self.masks.get(bit, 0) | flags


@dataclass(slots=True)
class Acks:
    """Acks of any trees."""

    xors: dict[int, int] = field(default_factory=dict)
    """root -> XOR."""
    masks: dict[int, int] = field(default_factory=dict)
    """root -> mask of the workers its new tuples were sent to. Only roots that are in `xors`."""
    blocks: dict[int, BlockAcks] = field(default_factory=dict)
    """First root of a block -> its acks."""

    def add(self, root: int, xor: int, mask: int) -> None:
        """Add an ack of one tree."""
        self.xors[root] = self.xors.get(root, 0) ^ xor
        if mask:
            self.masks[root] = self.masks.get(root, 0) | mask

    def merge(self, more: Acks) -> None:
        """Add more acks. `more` is not used again: parts of it may be in this one."""
        if not self.xors:
            self.xors = more.xors
        else:
            xors = self.xors
            for root, value in more.xors.items():
                xors[root] = xors.get(root, 0) ^ value
        for root, mask in more.masks.items():
            self.masks[root] = self.masks.get(root, 0) | mask
        for base, acks in more.blocks.items():
            known = self.blocks.setdefault(base, acks)
            if known is not acks:
                known.merge(acks.xors, acks.masks)

    def __bool__(self) -> bool:
        return bool(self.xors or self.blocks)
