"""A batch: consecutive tuples of one stream from one task to another, the unit of queueing and transport.

Its tuples are grouped in runs (see `engine.api.tuple`): run i covers rows `starts[i]` up to `starts[i + 1]`, belongs to
the tree `roots[i]` (0 = untracked) and is tracked under `edges[i]`. If a run belongs to several trees, `others[i]` has
its further (root, edge) pairs. Where all are of one block, as most are, they are columns (`BlockBatch`).

A task has an open batch for each task that it may send to. Of few targets, all have theirs from the start, in a list,
because that is the fastest to index. Of many, each gets its batch when it is chosen for the first time: else batches
would grow with the square of the tasks, and memory and the start of workers with them.

Guarantees: however a batch is cut, its tuples stay in their order, and the edges of a run that is cut XOR to the one
that its tree knows.

Relies on: nobody but its owner touching it. Thread: one at a time, its owner's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from squall.engine.foreign.picklable import PickleCheck

from squall.engine.api.columns import Columns
from squall.engine.api.tuple import Run
from squall.engine.flow.ids import Block
from squall.engine.flow.member_columns import RowCounts, Words, column_of, words_of
from squall.engine.foreign.sizes import columns_bytes, estimate, rows_bytes

_new_batch = object.__new__
LONG_ROWS = 8192
"""A batch of more rows is from a call that emitted as many. To take them out by slices, each of which moves the rest,
takes a time that grows with the square of their number, so it is cut into pieces before."""
_NOTHING: Any = ()
"""The rows and runs of an open batch that is empty: whoever appends to one that was not begun gets an error."""


class Batch:
    """A batch on its way. Thread: one at a time, its owner's."""

    __slots__ = (
        "bytes", "edges", "measured", "others", "roots", "rows", "source", "starts", "stream", "target",
    )

    def __init__(self, source: int, stream: str, target: int) -> None:
        self.source = source
        """Task that emitted the tuples."""
        self.stream = stream
        self.target = target
        """Task that receives them."""
        self.rows: Any = []
        """A list of tuples, or `Columns` (see `engine.api.columns`): a sequence of the same tuples."""
        self.starts: list[int] = []
        self.roots: list[int] = []
        self.edges: list[int] = []
        self.others: dict[int, tuple[tuple[int, int], ...]] | None = None
        self.bytes = 0
        """Estimated memory of its rows; 0 = not estimated yet."""
        self.measured = False
        """True if `bytes` was computed from every row, not from a few."""

    @property
    def run_count(self) -> int:
        """Number of runs, those without rows too."""
        return len(self.starts)

    @property
    def run_rows(self) -> RowCounts:
        """How many of its rows each run has."""
        return RowCounts(ends=[*self.starts[1:], len(self.rows)])

    @property
    def trees(self) -> Sequence[int]:
        """Roots of all trees of its runs, which outlive its rows; 0 stands for none."""
        others = self.others
        return [*self.roots, *(root for pairs in others.values() for root, _ in pairs)] if others else self.roots

    def _by_run(self) -> Iterator[tuple[int, int, int]]:
        """Root, edge and number of rows of each run."""
        return zip(self.roots, self.edges, self.run_rows.counts, strict=True)

    def runs(self) -> list[Run]:
        """Make its runs that have rows, for a bolt that acks by itself."""
        others, runs = self.others or {}, []
        for number, (root, edge, rows) in enumerate(self._by_run()):
            if rows:
                run = Run(root, edge, rows, others.get(number, ()))
                run.number = number
                runs.append(run)
        return runs

    def untracked_rows(self) -> int:
        """Count the tuples that belong to no tree."""
        return sum(rows for root, _, rows in self._by_run() if not root) if 0 in self.roots else 0

    def weigh(self) -> int:
        """Estimate `bytes` from a few rows."""
        rows, runs = self.rows, self.run_count
        self.bytes = size = estimate(rows, runs) if rows.__class__ is list else columns_bytes(rows, runs)
        return size

    def measure(self) -> int:
        """Compute `bytes` from every row, once; returns the growth."""
        if self.measured:
            return 0
        rows, runs, before = self.rows, self.run_count, self.bytes
        self.bytes = rows_bytes(rows, runs) if rows.__class__ is list else columns_bytes(rows, runs)
        self.measured = True
        return self.bytes - before

    def take(self) -> Batch:
        """The batch itself: it is closed. See `OpenBatch.take`."""
        return self

    @classmethod
    def untracked(cls, source: int, stream: str, target: int, values: tuple[Any, ...]) -> Batch:
        """Make a batch of one tuple that belongs to no tree."""
        batch = Batch(source, stream, target)
        batch.rows, batch.starts, batch.roots, batch.edges = [values], [0], [0], [0]
        return batch

    def split(self, count: int, new_edge: Callable[[], int]) -> Batch:
        """Take out the first `count` rows, fewer than there are; this batch keeps the rest.

        A run that is cut becomes two. The first gets an edge drawn by `new_edge`, the second the XOR of that edge and
        the old one: together they are the edge that the sender reported, so the tree is open until both are acked, in
        any order.
        """
        starts, others = self.starts, self.others
        runs = bisect_left(starts, count)
        kept = runs if runs < len(starts) and starts[runs] == count else runs - 1
        head = self._cut_rows(type(self)(self.source, self.stream, self.target), count)
        head.starts, self.starts = starts[:runs], [max(0, start - count) for start in starts[kept:]]
        head.roots, self.roots = self.roots[:runs], self.roots[kept:]
        head.edges, self.edges = self.edges[:runs], self.edges[kept:]
        if others is not None:
            head.others = {run: pairs for run, pairs in others.items() if run < runs}
            self.others = {run - kept: pairs for run, pairs in others.items() if run >= kept}
        if kept < runs:
            self._share_edge(head, kept, new_edge)
        return head

    def pieces(self, new_edge: Callable[[], int]) -> list[Batch]:
        """The batch in pieces of at most LONG_ROWS rows, in order: itself, nearly always."""
        rows = len(self.rows)
        if rows <= LONG_ROWS:
            return [self]
        return self.split(rows // 2, new_edge).pieces(new_edge) + self.pieces(new_edge)

    def continues_with(self, later: Batch) -> bool:
        """Return True if the tuples of a later batch may follow its own: of one stream and kind of columns."""
        if self.stream != later.stream:
            return False
        rows, more = self.rows, later.rows
        if not isinstance(rows, Columns):
            return not isinstance(more, Columns)
        return isinstance(more, Columns) and rows.continues_with(more)

    @staticmethod
    def join(batches: list[Batch]) -> Batch:
        """Make one batch of several, each of which continues the first; they are not used again."""
        first = batches[0]
        made = Batch(first.source, first.stream, first.target)
        parts = [batch.rows for batch in batches]
        made.rows = Columns.joined(parts) if isinstance(first.rows, Columns) else list(chain.from_iterable(parts))
        others: dict[int, tuple[tuple[int, int], ...]] = {}
        before = 0
        for batch in batches:
            others.update((len(made.starts) + run, pairs) for run, pairs in (batch.others or {}).items())
            made.starts += [before + start for start in batch.starts]
            made.roots += batch.roots
            made.edges += batch.edges
            made.bytes += batch.bytes
            before += len(batch.rows)
        made.others = others or None
        made.measured = all(batch.measured for batch in batches)
        return made

    def _cut_rows(self, head: Batch, count: int) -> Batch:
        """Move the first `count` rows to a new batch, without their runs."""
        head.bytes = self.bytes * count // len(self.rows)
        self.bytes -= head.bytes
        head.measured = self.measured
        head.rows, self.rows = self.rows[:count], self.rows[count:]
        return head

    def _share_edge(self, head: Batch, cut: int, new_edge: Callable[[], int]) -> None:
        """Give run `cut` of `head` and the first run of this batch, which were one, an edge each."""
        if not head.roots[cut]:
            return
        edge = new_edge()
        head.edges[cut] = edge
        self.edges[0] ^= edge
        if self.others and 0 in self.others and head.others:
            head.others[cut] = tuple((root, edge) for root, _ in self.others[0])
            self.others[0] = tuple((root, rest ^ edge) for root, rest in self.others[0])


class BlockBatch(Batch):
    """A batch whose tuples all belong to trees of one block, and to no others. Its runs are columns; a run without rows
    has edge 0, and counts as none. The lists of a batch are made of them when they are asked for."""

    __slots__ = ("_run_rows", "block", "members", "words")

    def __init__(self, instead_of: Batch, block: Block, members: Sequence[int], run_rows: RowCounts, words: Words):
        """It is from and for the tasks of another batch."""
        # Not by `Batch.__init__`, which makes lists.
        self.source, self.stream, self.target = instead_of.source, instead_of.stream, instead_of.target
        self.others, self.bytes, self.measured = None, 0, False
        self.block = block
        self.members = members
        """The member that each run belongs to; a range, if they are neighbours."""
        self._run_rows = run_rows
        self.words = words
        """The edge of each run."""

    @property
    def run_count(self) -> int:
        return len(self.members)

    @property
    def run_rows(self) -> RowCounts:
        return self._run_rows

    def _by_run(self) -> Iterator[tuple[int, int, int]]:
        roots = self.block.roots(self.members)
        return zip(roots, words_of(self.words, len(roots)), self._run_rows.counts, strict=True)

    @property
    def roots(self) -> Sequence[int]:  # type: ignore[override]
        flags = self._run_rows.flags
        return self.block.roots(compress(self.members, flags) if 0 in flags else self.members)

    @property
    def edges(self) -> list[int]:  # type: ignore[override]
        return list(filter(None, words_of(self.words, len(self.members))))

    @property
    def starts(self) -> list[int]:  # type: ignore[override]
        return list(compress(self._run_rows.starts, self._run_rows.flags))

    def untracked_rows(self) -> int:
        return 0

    def split(self, count: int, new_edge: Callable[[], int]) -> Batch:
        members, rows, words = self.members, self._run_rows, words_of(self.words, len(self.members))
        cut = bisect_left(rows.ends, count)
        over = rows.ends[cut] - count
        kept = cut if over else cut + 1
        first, later = words[: cut + 1], words[kept:]
        if over:
            counts = rows.counts
            rows_of_first = RowCounts([*counts[:cut], counts[cut] - over])
            self._run_rows = RowCounts([over, *counts[kept + 1 :]])
            first[cut] = edge = new_edge()
            later[0] ^= edge
        else:
            rows_of_first, self._run_rows = rows.part(0, kept), rows.part(kept, len(rows))
        head = BlockBatch(self, self.block, members[: cut + 1], rows_of_first, column_of(first))
        self.members, self.words = members[kept:], column_of(later)
        return self._cut_rows(head, count)


class OpenBatch(Batch):
    """The tuples that one task has emitted to another since the last flush. Lives as long as the sending task, and only
    that touches it; the outbox begins it, `take` moves the content out.

    It has no list while it is empty: a task has one of it for each task that it may send to, so their number grows with
    the square of the tasks, and few hold a tuple at any moment.
    """

    __slots__ = ("bits", "check", "last", "mask", "owners")

    def __init__(
        self, source: int, stream: str, target: int, bits: dict[int, int], check: PickleCheck | None = None
    ) -> None:
        # Not by `Batch.__init__`, which makes lists.
        self.source, self.stream, self.target = source, stream, target
        self.rows = self.starts = self.roots = self.edges = _NOTHING
        self.others, self.bytes, self.measured = None, 0, False
        self.check = check
        """Checks the first tuple of each batch."""
        self.bits = bits
        """Target task -> bit of its worker's present incarnation, 0 if it is in this worker. Shared, kept current."""
        self.mask = 0
        """The target's bit when the batch was begun."""
        self.last: object = None
        """Marks the anchor of the last run: more tuples anchored to it continue the run. None while empty."""
        self.owners: Any = _NOTHING
        """Of its last runs, those that have no edge yet: the number of the run that each is anchored to."""

    def take_owned(self) -> tuple[Any, list[int]]:
        """Take out the rows of the runs without an edge, and where each of these runs begins."""
        kept = len(self.starts) - len(self.owners)
        if not kept:
            rows, starts = self.rows, self.starts
            self.rows = self.starts = self.roots = self.edges = _NOTHING
            return rows, starts
        first = self.starts[kept]
        rows, starts = self.rows[first:], [start - first for start in self.starts[kept:]]
        del self.rows[first:], self.starts[kept:]
        return rows, starts

    def take(self) -> Batch:
        """Move the content to a batch; this one is empty afterwards."""
        # Bypasses `__init__`, which would make four lists in vain: a batch may have only one row.
        batch = _new_batch(Batch)
        batch.source, batch.stream, batch.target = self.source, self.stream, self.target
        batch.rows, batch.starts, batch.roots, batch.edges = self.rows, self.starts, self.roots, self.edges
        batch.others, batch.bytes, batch.measured = self.others, 0, False
        self.rows = self.starts = self.roots = self.edges = _NOTHING
        self.others, self.last = None, None
        return batch


AT_ONCE = 32
"""Targets that get their batches from the start: so many take some 5 KiB for each sender."""


class MadeWhenChosen(dict[int, OpenBatch]):
    """number -> batch, of the targets that were chosen so far; a number that is not in it gets its batch."""

    def __init__(self, make: Callable[[int], OpenBatch]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, number: int) -> OpenBatch:
        batch = self[number] = self._make(number)
        return batch


OpenBatches = list[OpenBatch] | MadeWhenChosen


def open_batches(n_targets: int, make: Callable[[int], OpenBatch]) -> OpenBatches:
    """Make the batches, or what makes them; `make(number)` makes that of one target."""
    return [make(number) for number in range(n_targets)] if n_targets <= AT_ONCE else MadeWhenChosen(make)


def made(batches: OpenBatches) -> Iterable[OpenBatch]:
    """The batches that there are."""
    return batches.values() if isinstance(batches, MadeWhenChosen) else batches
