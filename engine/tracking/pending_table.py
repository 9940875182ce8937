"""The unanswered trees of a spout task: single ones, ordered by deadline, and those that were emitted in blocks.

Guarantees
    * A timeout is precise: the table is ordered by deadline, and every turn of the loop checks the earliest.
    * A message that is looked up alone (it failed, is charged, its timeout starts afresh) leaves its block; the others
      stay.

Pure. Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain, compress, islice
from typing import Any

from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.flow.ids import Block
from squall.engine.flow.spout_collector import Routed
from squall.engine.foreign.identity import are_keys, key_of
from squall.engine.tracking.blocks import Blocks, OpenMembers

Tree = tuple[Any, int, int, Any]
"""(message id, emitted at, timeout counted from, values)."""


class OpenBlock(OpenMembers):
    """The messages of one block that are not answered."""

    __slots__ = ("_ids", "_keys", "_rows", "_stream", "emitted_ns")

    def __init__(self, block: Block, ids: Sequence[Any], rows: Sequence[Any], stream: str, now_ns: int) -> None:
        super().__init__(block)
        self.emitted_ns = now_ns
        self._ids = ids
        self._rows = rows
        self._stream = stream
        self._keys: Sequence[Hashable] | None = None

    @property
    def keys(self) -> Sequence[Hashable]:
        """The key of each message (`engine.foreign.identity`)."""
        if self._keys is None:
            ids = self._ids
            members = range(self.block.members)
            self._keys = ids if are_keys(ids) else [key_of(ids[member], self._row(member)) for member in members]
        return self._keys

    def keys_of(self, members: Sequence[int]) -> Sequence[Hashable]:
        """The keys of members, each named once."""
        keys = self.keys
        return keys if len(members) == len(keys) else [keys[member] for member in members]

    def ids_of(self, members: Sequence[int]) -> list[Any]:
        """The ids of messages that are open, each named once, in their order."""
        if len(members) < len(self):
            return list(map(self._ids.__getitem__, members))
        # Mostly: what is left of a block after few of its messages had an answer.
        return list(compress(self._ids, self.is_open))

    def tree(self, member: int) -> Tree:
        """What the pending table would have of a message."""
        return self._ids[member], self.emitted_ns, self.emitted_ns, self._row(member)

    def _row(self, member: int) -> Any:
        row: Any = self._rows[member]
        return row if self._stream == DEFAULT_STREAM else Routed.on(self._stream, None, row)

    def answered(self) -> list[int]:
        """The members that are not open."""
        return [member for member, is_open in enumerate(self.is_open) if not is_open]


class PendingTable:
    """Trees of one spout task."""

    __slots__ = ("_in_blocks", "_timeout_ns", "blocks", "due_ns", "trees")

    def __init__(self, timeout_ns: int) -> None:
        self._timeout_ns = timeout_ns
        self.trees: dict[int, Tree] = {}
        """root -> (message id, emitted at, timeout counted from, values). The same object for life. Insertion order is
        deadline order: the timeout is the same for all, and a reset moves a tree to the end."""
        self.blocks: Blocks[OpenBlock] = Blocks()
        """Trees that were emitted in blocks. The same object for life."""
        self._in_blocks = 0
        """How many of them are open."""
        self.due_ns = 0
        """No tree expires before this; trees that are added later expire later."""

    def __len__(self) -> int:
        return len(self.trees) + self._in_blocks

    def __iter__(self) -> Iterator[tuple[int, Tree]]:
        """(root, tree) of each open message."""
        yield from self.trees.items()
        for opened in self.blocks:
            yield from zip(opened.block.roots(opened), map(opened.tree, opened), strict=True)

    def add_block(self, opened: OpenBlock) -> None:
        self.blocks.begin(opened)
        self._in_blocks += len(opened)

    def tree(self, root: int) -> Tree | None:
        """What is open under this root, if anything."""
        tree = self.trees.get(root)
        if tree is None and (place := self.blocks.find(root)):
            opened, member = place
            tree = opened.tree(member)
        return tree

    def pop(self, root: int) -> Tree | None:
        """Take out a tree; None if there is no such tree."""
        tree = self.trees.pop(root, None)
        if tree is None and (place := self.blocks.find(root)):
            opened, member = place
            tree = opened.tree(member)
            self._leave(opened, (member,))
        return tree

    def take(self, opened: OpenBlock, members: Sequence[int]) -> list[Any]:
        """Take out messages of one block that are open (see `open_of`), in their order; returns their ids."""
        ids = opened.ids_of(members)
        self._leave(opened, members)
        return ids

    def _leave(self, opened: OpenBlock, members: Sequence[int]) -> None:
        opened.leave(members)
        self._in_blocks -= len(members)
        self.blocks.drop_if_done(opened)

    def reset(self, root: int, now_ns: int) -> None:
        """Count the tree's timeout from now."""
        tree = self.pop(root)
        if tree is not None:
            self.trees[root] = (tree[0], tree[1], now_ns, tree[3])

    def overdue(self, now_ns: int) -> list[int]:
        """Roots of the trees whose time is up."""
        limit, next_ns, roots = now_ns - self._timeout_ns, now_ns, list[int]()
        for root, tree in self.trees.items():
            if tree[2] > limit:
                next_ns = tree[2]
                break
            roots.append(root)
        for opened in self.blocks:
            if opened.emitted_ns > limit:
                next_ns = min(next_ns, opened.emitted_ns)
                break
            roots += opened.block.roots(opened)
        self.due_ns = next_ns + self._timeout_ns
        return roots

    @property
    def next_deadline_ns(self) -> int | None:
        """When the earliest tree times out."""
        alone = (tree[2] for tree in islice(self.trees.values(), 1))
        since_ns = min(chain(alone, (opened.emitted_ns for opened in islice(self.blocks, 1))), default=None)
        return None if since_ns is None else since_ns + self._timeout_ns
