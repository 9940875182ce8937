"""Blocks: the trees that a spout emits in one turn, which are tracked together for as long as they fare alike.

Roots are a counter, so a block is its first root and their number; its trees, the *members*, are numbered from 0. What
acks say of a block is a column with a word for each member, and one XOR of two columns acks all of its trees.

Guarantees: each tree keeps an XOR of its own, so any of them can be acked, failed or timed out alone. Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import NamedTuple

from squall.engine.api.tuple import Run
from squall.engine.flow.batch import Batch
from squall.engine.flow.ids import ACKER_BITS
from squall.engine.flow.row_counts import RowCounts

MIN_MEMBERS, MAX_MEMBERS = 16, 1 << 16
"""Fewer trees are not worth a block, which costs a turn some 80 us; the number of a member takes two bytes."""
WORD_BYTES, WORD_BITS = 8, 64
Flags = int
"""One byte for each member, 1 or 0, the first one lowest."""
_NO_WORD, _WHOLE_WORD = bytes(WORD_BYTES), b"\xff" * WORD_BYTES


class Block(NamedTuple):
    """The trees `base`, `base + (1 << ACKER_BITS)` and so on."""

    base: int
    members: int

    def roots(self, members: Iterable[int]) -> list[int]:
        """The roots of the trees in these members."""
        base = self.base
        return [base + (member << ACKER_BITS) for member in members]

    def member_of(self, root: int) -> int:
        """The member of one of its trees."""
        return root - self.base >> ACKER_BITS


def block_of(roots: Sequence[int], least: int = MIN_MEMBERS) -> Block | None:
    """The block of roots that were drawn in a row; None if they are no block, or fewer than `least`."""
    count = len(roots)
    if least <= count <= MAX_MEMBERS and roots[-1] - roots[0] == count - 1 << ACKER_BITS:
        return Block(roots[0], count)
    return None


def column_of(words: Sequence[int]) -> int:
    """Words of 64 bits as one number, the first one lowest."""
    return int.from_bytes(array("Q", words).tobytes(), "little")


def words_of(column: int, count: int) -> array[int]:
    """Reverse `column_of`."""
    return array("Q", column.to_bytes(WORD_BYTES * count, "little"))


def only_flagged(words: bytes, flags: bytes) -> bytes:
    """Words of 64 bits, with 0 in place of those whose flag is 0."""
    mask = flags.replace(b"\0", _NO_WORD).replace(b"\1", _WHOLE_WORD)
    both = int.from_bytes(words, "little") & int.from_bytes(mask, "little")
    return both.to_bytes(len(words), "little")


def flags_of(members: Iterable[int], count: int) -> Flags:
    """Flags with 1 for these of `count` members."""
    flags = bytearray(count)
    for member in members:
        flags[member] = 1
    return int.from_bytes(flags, "little")


def flagged(flags: Flags, count: int) -> list[int]:
    """The members whose flag is 1."""
    return list(compress(range(count), flags.to_bytes(count, "little")))


class ByMember:
    """The runs of a batch as columns: one for each of neighbouring members, in their order. A member without
    rows has edge 0, and counts as no run."""

    __slots__ = ("edges", "first", "rows")

    def __init__(self, first: int, rows: RowCounts, edges: bytes) -> None:
        self.first = first
        """The member of the first run."""
        self.rows = rows
        """Of each run."""
        self.edges = edges
        """A word of 64 bits for each."""

    def __len__(self) -> int:
        return len(self.edges) // WORD_BYTES

    @property
    def members(self) -> list[int]:
        """The member of each run that has rows."""
        return list(compress(range(self.first, self.first + len(self)), self.rows.flags))

    def cut(self, count: int, new_edge: Callable[[], int]) -> tuple[ByMember, ByMember]:
        """The runs of the first `count` rows, and those of the others. One that is cut is in both (`Batch.split`)."""
        rows, words = self.rows, array("Q", self.edges)
        cut = bisect_left(rows.ends, count)
        over = rows.ends[cut] - count
        if not over:
            return self._part(rows, words, 0, cut + 1), self._part(rows, words, cut + 1, len(words))
        counts, edge = list(rows.counts), new_edge()
        rest = words[cut] ^ edge
        counts[cut] -= over
        words[cut] = edge
        head = self._part(RowCounts(counts[: cut + 1]), words, 0, cut + 1)
        counts[cut] = over
        words[cut] = rest
        return head, self._part(RowCounts(counts), words, cut, len(words))

    def _part(self, rows: RowCounts, words: array[int], begin: int, end: int) -> ByMember:
        return ByMember(self.first + begin, rows.part(begin, end), words[begin:end].tobytes())


class _Trees:
    """Roots of the trees of a batch's runs. They are made when they are asked for, after a frame was lost."""

    __slots__ = ("_block", "_by_member")

    def __init__(self, block: Block, by_member: ByMember) -> None:
        self._block, self._by_member = block, by_member

    def __iter__(self) -> Iterator[int]:
        return iter(self._block.roots(self._by_member.members))


class BlockBatch(Batch):
    """A batch whose tuples all belong to trees of one block, and to no others.

    Its runs are in lists as those of any batch, or in columns (`by_member`); then the lists are made of these when they
    are asked for, and take their place when one is replaced.
    """

    __slots__ = ("_by_member", "_edges", "_members", "_roots", "_spelled", "_starts", "block")

    block: Block
    _starts: list[int]
    _edges: list[int]
    _members: Sequence[int] | None
    _roots: list[int] | None
    """Members and roots are made from each other when they are asked for."""

    def __init__(self, source: int, stream: str, target: int) -> None:
        self._by_member: ByMember | None = None
        self._spelled = True
        super().__init__(source, stream, target)

    @property
    def by_member(self) -> ByMember | None:
        """The runs as columns; None if they are in lists."""
        return self._by_member

    def has_runs(self, block: Block, by_member: ByMember) -> None:
        """Set the block, and the runs as columns."""
        self.block, self._by_member, self._spelled = block, by_member, False

    def belongs_to(self, block: Block, members: Sequence[int]) -> None:
        """Set the block, and the member of each run."""
        self._leave_columns()
        self.block = block
        self._members, self._roots = members, None

    def _spell_out(self) -> None:
        """Make the lists, unless they are there."""
        columns = self._by_member
        if self._spelled or columns is None:
            return
        self._spelled = True
        flags = columns.rows.flags
        self._starts = list(compress(columns.rows.starts, flags))
        self._edges = list(compress(array("Q", columns.edges), flags))
        self._members, self._roots = columns.members, None

    def _leave_columns(self) -> None:
        """A list is about to be replaced."""
        self._spell_out()
        self._by_member = None

    @property
    def starts(self) -> list[int]:
        self._spell_out()
        return self._starts

    @starts.setter
    def starts(self, starts: list[int]) -> None:
        self._leave_columns()
        self._starts = starts

    @property
    def edges(self) -> list[int]:
        self._spell_out()
        return self._edges

    @edges.setter
    def edges(self, edges: list[int]) -> None:
        self._leave_columns()
        self._edges = edges

    @property
    def members(self) -> Sequence[int]:
        """The member of each run."""
        self._spell_out()
        if self._members is None:
            block = self.block
            self._members = [block.member_of(root) for root in self._roots or ()]
        return self._members

    @property
    def roots(self) -> list[int]:
        self._spell_out()
        if self._roots is None:
            self._roots = self.block.roots(self._members or ())
        return self._roots

    @roots.setter
    def roots(self, roots: list[int]) -> None:
        self._leave_columns()
        self._roots, self._members = roots, None

    @property
    def run_rows(self) -> RowCounts:
        return super().run_rows if self._by_member is None else self._by_member.rows

    def runs(self) -> list[Run]:
        columns = self._by_member
        if columns is None:
            return super().runs()
        runs = []
        roots = self.block.roots(range(columns.first, columns.first + len(columns)))
        each = zip(roots, array("Q", columns.edges), columns.rows.counts, strict=True)
        for number, (root, edge, rows) in enumerate(each):
            if rows:
                run = Run(root, edge, rows)
                run.number = number
                runs.append(run)
        return runs

    def untracked_rows(self) -> int:
        return 0

    @property
    def run_count(self) -> int:
        return len(self.starts) if self._by_member is None else len(self._by_member)

    @property
    def trees(self) -> Iterable[int]:
        return self.roots if self._by_member is None else _Trees(self.block, self._by_member)

    def split(self, count: int, new_edge: Callable[[], int]) -> Batch:
        by_member = self._by_member
        if by_member is None:
            head = super().split(count, new_edge)
            if isinstance(head, BlockBatch):
                head.block = self.block
            return head
        head = self.cut_rows(count)
        assert isinstance(head, BlockBatch)
        first, rest = by_member.cut(count, new_edge)
        head.has_runs(self.block, first)
        self.has_runs(self.block, rest)
        return head
