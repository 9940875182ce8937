"""The pending table: the unanswered trees of a spout task, ordered by deadline.

Guarantees
    * A timeout is precise: the table is ordered by deadline, and every turn of the loop checks the earliest.

Pure. Thread: the worker's loop.
"""

from __future__ import annotations

from squall.engine.tracking.open_blocks import OpenBlocks, Tree


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
