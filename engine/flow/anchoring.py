"""The runs to which the rows of a batch are anchored, and the edges that its emits add to their trees.

Guarantees: rows in a row that are anchored to one run and go to one task get one edge; the XOR of all edges of a run
is in `of_runs`, with the workers that its rows went to.

Pure. Thread: the task's.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from itertools import compress, repeat
from operator import sub
from typing import Any

from squall.engine.flow.batch import Batch, OpenBatch
from squall.engine.flow.blocks import (
    WORD_BITS,
    WORD_BYTES,
    Block,
    BlockBatch,
    ByMember,
    Flags,
    column_of,
    flagged,
    flags_of,
    only_flagged,
    words_of,
)
from squall.engine.flow.ids import EdgeIds
from squall.engine.flow.row_counts import RowCounts

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
        `owners` ascend. It has a series for each of the `runs` if most of them have rows."""
        count = len(owners)
        if count * _MOST_EMPTY < runs:
            return cls(owners, RowCounts(ends=[*starts[1:], rows]))
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

    __slots__ = ("_sent", "children", "is_idle", "others", "roots")

    def __init__(self, roots: Sequence[int], others: Others | None = None) -> None:
        self.roots = roots
        self.others = others
        self.children = [0] * len(roots)
        self._sent: dict[int, list[Sequence[int]]] = {}
        self.is_idle = True
        """No run has a new edge."""

    def new_batch(self, instead_of: OpenBatch) -> Batch:
        """Make a batch for the task of an open batch."""
        return instead_of.closed(instead_of.source, instead_of.stream, instead_of.target)

    def settle(self, batch: OpenBatch, ids: EdgeIds) -> Batch | None:
        """Draw an edge for each run of an open batch that has none. If these runs must form a batch of their own, move
        them there and return it."""
        roots, owners = self.roots, batch.owners
        if len(owners) == 1 and batch.roots and not (batch.roots[-1] or roots[owners[0]]):
            batch.starts.pop()  # it goes on with the tuples of no tree before it
        else:
            self._extend(batch, owners, batch.mask, ids)
        return None

    def enter(self, batch: Any, owned: Owned, mask: int, ids: EdgeIds) -> None:
        """Give the rows of a batch their runs and edges. `mask`: the bit of the worker that it goes to."""
        runs, batch.starts = owned.filled()
        self._extend(batch, runs, mask, ids)

    def _extend(self, batch: Batch, runs: Sequence[int], mask: int, ids: EdgeIds) -> None:
        """Add these runs to those that a batch has, with an edge each."""
        self.is_idle = False
        roots, children, others = self.roots, self.children, self.others
        for run in runs:
            root = roots[run]
            edge = ids.next() if root else 0
            if not root:
                batch.loose = True
            elif others and run in others:
                batch.others = batch.others or {}
                batch.others[len(batch.roots)] = tuple((other, edge) for other, _ in others[run])
            batch.roots.append(root)
            batch.edges.append(edge)
            children[run] ^= edge
        if mask:
            self._sent.setdefault(mask, []).append(runs)

    def leave_open(self, run: int, ids: EdgeIds) -> None:
        """Add an edge that no tuple has, so that a tree without any tuple does not count as processed."""
        self.is_idle = False
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

    __slots__ = ("_count", "_first", "_flags", "_members", "_xors", "block")

    def __init__(self, block: Block, first: int, count: int, members: Sequence[int] | None = None) -> None:
        """There are `count` runs; run i belongs to member `first + i`, or to `members[i]`."""
        self.block = block
        self._first = first
        self._count = count
        self._members = members
        self._xors = 0
        """Of the edges of each run's new tuples: a word for each run."""
        self._flags: dict[int, Flags] = {}
        """Bit of a worker -> the runs with new tuples for it, as flags."""

    def new_batch(self, instead_of: OpenBatch) -> BlockBatch:
        return BlockBatch(instead_of.source, instead_of.stream, instead_of.target)

    def settle(self, batch: OpenBatch, ids: EdgeIds) -> Batch | None:
        owners, mask = batch.owners, batch.mask
        if len(owners) * _MOST_EMPTY >= self._count:
            made = self.new_batch(batch)
            made.rows, starts = batch.take_owned()
            self.enter(made, Owned.noted(owners, starts, len(made.rows), self._count), mask, ids)
            return made
        edges = ids.take(len(owners))
        batch.roots += [root for run in owners for root in self.trees_of(run)]
        batch.edges += edges
        self._add_words(owners, edges, mask)
        return None

    def enter(self, batch: Any, owned: Owned, mask: int, ids: EdgeIds) -> None:
        if self._members is None and owned.runs.__class__ is range and len(owned.runs) == self._count:
            flags = owned.rows.flags
            begin, end = flags.find(1), flags.rfind(1) + 1
            if flags.count(1) * _MOST_EMPTY >= end - begin:
                self._enter_columns(batch, owned.rows.part(begin, end), begin, flags[begin:end], mask, ids)
                return
        runs, batch.starts = owned.filled()
        batch.edges = edges = ids.take(len(runs))
        members = self._members
        batch.belongs_to(
            self.block, [self._first + run for run in runs] if members is None else list(map(members.__getitem__, runs))
        )
        self._add_words(runs, edges, mask)

    def _add_words(self, runs: Sequence[int], edges: list[int], mask: int) -> None:
        words = array("Q", bytes(WORD_BYTES * self._count))
        for run, edge in zip(runs, edges, strict=True):
            words[run] ^= edge
        self._add(column_of(words), flags_of(runs, self._count) if mask else 0, mask)

    def _enter_columns(
        self, batch: BlockBatch, rows: RowCounts, begin: int, flags: bytes, mask: int, ids: EdgeIds
    ) -> None:
        """The same for neighbouring runs, from `begin`, some of which may have no rows."""
        words = ids.take_column(len(flags))
        if 0 in flags:
            words = only_flagged(words, flags)
        batch.has_runs(self.block, ByMember(self._first + begin, rows, words))
        self._add(
            int.from_bytes(words, "little") << WORD_BITS * begin,
            int.from_bytes(flags, "little") << 8 * begin if mask else 0, mask,
        )

    def _add(self, xors: int, flags: Flags, mask: int) -> None:
        self._xors ^= xors
        if mask:
            self._flags[mask] = self._flags.get(mask, 0) | flags

    def leave_open(self, run: int, ids: EdgeIds) -> None:
        self._xors ^= ids.next() << WORD_BITS * run

    def trees_of(self, run: int) -> Sequence[int]:
        return self.block.roots((self._first + run if self._members is None else self._members[run],))

    def of_runs(self) -> tuple[Sequence[int], list[int]]:
        masks = [0] * self._count
        for mask, flags in self._flags.items():
            for run in flagged(flags, self._count):
                masks[run] |= mask
        return words_of(self._xors, self._count), masks

    def new_edges(self) -> int:
        """The XOR of the edges of each member's new tuples: a word for each member."""
        return self._by_member(self._xors)

    def acks_of(self, batch: BlockBatch, but: Collection[int]) -> int:
        """What acks the runs of the batch at hand, those in `but` excepted: a word for each member."""
        columns = batch.by_member
        edges = column_of(batch.edges) if columns is None else int.from_bytes(columns.edges, "little")
        return self._by_member(edges ^ self._xors, but)

    def _by_member(self, xors: int, but: Collection[int] = ()) -> int:
        """A word of each run as a word of each member: their XOR where a member has several runs."""
        if self._members is None and not but:
            return xors << WORD_BITS * self._first
        words = words_of(xors, self._count)
        for run in but:
            words[run] = 0
        if self._members is None:
            return column_of(words) << WORD_BITS * self._first
        found = array("Q", bytes(WORD_BYTES * self.block.members))
        for member, word in zip(self._members, words, strict=True):
            found[member] ^= word
        return column_of(found)

    def flags(self) -> dict[int, Flags]:
        """Bit of a worker -> the members with new tuples for it."""
        members, count = self._members, self.block.members
        if members is None:
            return {mask: flags << 8 * self._first for mask, flags in self._flags.items()}
        return {
            mask: flags_of((members[run] for run in flagged(flags, self._count)), count)
            for mask, flags in self._flags.items()
        }


def anchoring_of(batch: Batch) -> Anchoring:
    """Of the runs of a batch that is about to be executed."""
    if isinstance(batch, BlockBatch):
        columns = batch.by_member
        if columns is not None:
            return BlockAnchoring(batch.block, columns.first, len(columns))
        return BlockAnchoring(batch.block, 0, len(batch.starts), batch.members)
    return Anchoring(batch.roots, batch.others)
