"""The unanswered trees of a spout task: single ones, ordered by deadline, and those that were emitted in blocks.

Guarantees
    * A timeout is precise: the table is ordered by deadline, and every turn of the loop checks the earliest.
    * A message that is looked up alone (it failed, is charged, its timeout starts afresh) leaves its block; the others
      stay.

Pure. Thread: the worker's loop.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any

from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.flow.ids import Block
from squall.engine.flow.spout_collector import Routed
from squall.engine.foreign.identity import are_keys, key_of

Tree = tuple[Any, int, int, Any]
"""(message id, emitted at, timeout counted from, values)."""


class OpenBlock:
    """The messages of one block that are not answered."""

    __slots__ = ("_ids", "_keys", "_open", "_rows", "_stream", "block", "count", "emitted_ns")

    def __init__(self, block: Block, ids: Sequence[Any], rows: Sequence[Any], stream: str, now_ns: int) -> None:
        self.block = block
        self.emitted_ns = now_ns
        self.count = block.members
        """How many are open."""
        self._ids = ids
        self._rows = rows
        self._stream = stream
        self._open = bytearray(b"\1" * block.members)
        self._keys: Sequence[Hashable] | None = None

    @property
    def keys(self) -> Sequence[Hashable]:
        """The key of each message (`engine.foreign.identity`)."""
        if self._keys is None:
            ids = self._ids
            members = range(self.block.members)
            self._keys = ids if are_keys(ids) else [key_of(ids[member], self._row(member)) for member in members]
        return self._keys

    def open_of(self, members: Sequence[int]) -> Sequence[int]:
        """Those of the members that are open."""
        if self.count == self.block.members:
            return members
        return list(filter(self._open.__getitem__, members))

    def keys_of(self, members: Sequence[int]) -> Sequence[Hashable]:
        """The keys of members, each named once."""
        keys = self.keys
        return keys if len(members) == len(keys) else [keys[member] for member in members]

    def is_open(self, member: int) -> bool:
        """Return True if a message has no answer yet."""
        return bool(self._open[member])

    def take(self, members: Sequence[int]) -> list[Any]:
        """Take out messages that are open, each named once, in their order; returns their ids."""
        self.count -= len(members)
        if not self.count:
            # Mostly: what is left of a block after few of its messages had an answer.
            ids = list(compress(self._ids, self._open))
            self._open = bytearray(self.block.members)
            return ids
        open_ = self._open
        for member in members:
            open_[member] = 0
        return list(map(self._ids.__getitem__, members))

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
        return self._ids[member], self.emitted_ns, self.emitted_ns, self._row(member)

    def _row(self, member: int) -> Any:
        row: Any = self._rows[member]
        return row if self._stream == DEFAULT_STREAM else Routed.on(self._stream, None, row)

    def roots(self) -> Sequence[int]:
        """Of the messages that are open."""
        return self.block.roots(compress(range(self.block.members), self._open))

    def answered(self) -> list[int]:
        """The members that are not open."""
        return [member for member, is_open in enumerate(self._open) if not is_open]


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

    def blocks(self) -> Iterable[OpenBlock]:
        """Those that have an open message."""
        return self._by_base.values()

    def get(self, base: int) -> OpenBlock | None:
        """The block with this first root, if one of its messages is open."""
        return self._by_base.get(base)

    def take(self, opened: OpenBlock, members: Sequence[int]) -> list[Any]:
        """Take out messages of one block that are open (see `OpenBlock.open_of`), in their order; returns their ids."""
        ids = opened.take(members)
        self._took(opened, len(ids))
        return ids

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

    def tree(self, root: int) -> Tree | None:
        """What is open under this root, if anything."""
        return None if root not in self or (opened := self._find(root)) is None else opened.tree(
            opened.block.member_of(root)
        )

    def __contains__(self, root: int) -> bool:
        opened = self._find(root)
        return opened is not None and opened.is_open(opened.block.member_of(root))

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


class PendingTable:
    """Trees of one spout task."""

    __slots__ = ("_timeout_ns", "blocks", "due_ns", "trees")

    def __init__(self, timeout_ns: int) -> None:
        self._timeout_ns = timeout_ns
        self.trees: dict[int, Tree] = {}
        """root -> (message id, emitted at, timeout counted from, values). The same object for life. Insertion order is
        deadline order: the timeout is the same for all, and a reset moves a tree to the end."""
        self.blocks = OpenBlocks()
        """Trees that were emitted in blocks. The same object for life."""
        self.due_ns = 0
        """No tree expires before this; trees that are added later expire later."""

    def tree(self, root: int) -> Tree | None:
        """What is open under this root, if anything."""
        tree = self.trees.get(root)
        return self.blocks.tree(root) if tree is None and self.blocks.count else tree

    def pop(self, root: int) -> Tree | None:
        """Take out a tree; None if there is no such tree."""
        tree = self.trees.pop(root, None)
        return self.blocks.take_tree(root) if tree is None and self.blocks.count else tree

    def reset(self, root: int, now_ns: int) -> None:
        """Count the tree's timeout from now."""
        tree = self.pop(root)
        if tree is not None:
            self.trees[root] = (tree[0], tree[1], now_ns, tree[3])

    def overdue(self, now_ns: int) -> list[int]:
        """Roots of the trees whose time is up."""
        limit = now_ns - self._timeout_ns
        self.due_ns = now_ns + self._timeout_ns
        found = []
        for root, tree in self.trees.items():
            if tree[2] > limit:
                self.due_ns = tree[2] + self._timeout_ns
                break
            found.append(root)
        if self.blocks.count:
            overdue, since_ns = self.blocks.overdue(limit)
            found += overdue
            if since_ns is not None:
                self.due_ns = min(self.due_ns, since_ns + self._timeout_ns)
        return found

    @property
    def next_deadline_ns(self) -> int | None:
        """When the earliest tree times out."""
        since_ns = self.blocks.oldest_ns
        for tree in self.trees.values():
            since_ns = tree[2] if since_ns is None else min(since_ns, tree[2])
            break
        return None if since_ns is None else since_ns + self._timeout_ns
