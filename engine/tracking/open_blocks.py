"""The unanswered messages of a spout task that were emitted in blocks, beside its pending table.

Guarantees: as of single trees: each is answered once. A message that is looked up alone (it failed, is charged, its
timeout starts afresh) leaves its block; the others stay.

Pure. Thread: the worker's loop.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any

from squall.engine.api.columns import Columns
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.flow.blocks import Block
from squall.engine.flow.routed import Routed

Tree = tuple[Any, int, int, Any]
"""(message id, emitted at, timeout counted from, values), as in the pending table."""


class OpenBlock:
    """The messages of one block that are not answered."""

    __slots__ = ("_ids", "_open", "_rows", "_stream", "block", "count", "emitted_ns")

    def __init__(self, block: Block, ids: Sequence[Any], rows: Columns, stream: str, now_ns: int) -> None:
        self.block = block
        self.emitted_ns = now_ns
        self.count = block.members
        """How many are open."""
        self._ids = ids
        self._rows = rows
        self._stream = stream
        self._open = bytearray(b"\1" * block.members)

    def take(self, members: Sequence[int]) -> list[Any]:
        """Take out messages, those of them that are open; returns their ids."""
        if len(members) == self.count == self.block.members:
            self.count = 0
            self._open = bytearray(self.block.members)
            return list(self._ids)
        open_, ids = self._open, []
        for member in members:
            if open_[member]:
                open_[member] = 0
                ids.append(self._ids[member])
        self.count -= len(ids)
        return ids

    def take_tree(self, member: int) -> Tree | None:
        """Take out one message; None if it is not open."""
        if not self._open[member]:
            return None
        tree = self.tree(member)
        self._open[member] = 0
        self.count -= 1
        return tree

    def tree(self, member: int) -> Tree:
        """What the pending table would have of a message."""
        row: Any = self._rows[member]
        if self._stream != DEFAULT_STREAM:
            row = Routed.on(self._stream, None, row)
        return self._ids[member], self.emitted_ns, self.emitted_ns, row

    def roots(self) -> list[int]:
        """Of the messages that are open."""
        return self.block.roots(compress(range(self.block.members), self._open))


class OpenBlocks:
    """All blocks of one spout task that have an open message, in the order of their emits."""

    __slots__ = ("_bases", "_by_base", "count")

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._by_base: dict[int, OpenBlock] = {}
        self.count = 0
        """Open messages."""

    def __iter__(self) -> Iterator[tuple[int, Tree]]:
        """(root, tree) of each open message."""
        for opened in self._by_base.values():
            for root in opened.roots():
                yield root, opened.tree(opened.block.member_of(root))

    def add(self, opened: OpenBlock) -> None:
        self._by_base[opened.block.base] = opened
        self._bases.append(opened.block.base)  # roots are drawn in rising order
        self.count += opened.count

    def take(self, base: int, members: Sequence[int]) -> tuple[list[Any], int]:
        """Take out messages of one block: the ids of those that are open, and when they were emitted."""
        opened = self._by_base.get(base)
        if opened is None:
            return [], 0
        ids = opened.take(members)
        self._took(opened, len(ids))
        return ids, opened.emitted_ns

    def _took(self, opened: OpenBlock, count: int) -> None:
        self.count -= count
        if not opened.count:
            del self._by_base[opened.block.base]
            self._bases.remove(opened.block.base)

    def _find(self, root: int) -> OpenBlock | None:
        at = bisect_right(self._bases, root) - 1
        if at < 0:
            return None
        opened = self._by_base[self._bases[at]]
        return opened if opened.block.member_of(root) < opened.block.members else None

    def __contains__(self, root: int) -> bool:
        opened = self._find(root)
        return opened is not None and root in opened.roots()

    def take_tree(self, root: int) -> Tree | None:
        """Take out one message by its root; None if it is not open."""
        opened = self._find(root)
        if opened is None:
            return None
        tree = opened.take_tree(opened.block.member_of(root))
        if tree is not None:
            self._took(opened, 1)
        return tree

    def overdue(self, limit_ns: int) -> tuple[list[int], int | None]:
        """Roots of the messages that were emitted by then, and when the next one was."""
        found: list[int] = []
        for opened in self._by_base.values():
            if opened.emitted_ns > limit_ns:
                return found, opened.emitted_ns
            found += opened.roots()
        return found, None

    @property
    def oldest_ns(self) -> int | None:
        """When the oldest was emitted; None if there is none."""
        for opened in self._by_base.values():
            return opened.emitted_ns
        return None
