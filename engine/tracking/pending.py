"""The pending table: the unanswered trees of a spout task, ordered by deadline.

Guarantees
    * A timeout is precise: the table is ordered by deadline, and every turn of the loop checks the earliest.

Pure. Thread: the worker's loop.
"""

from __future__ import annotations

from typing import Any


class PendingTable:
    """Trees of one spout task."""

    __slots__ = ("_timeout_ns", "due_ns", "trees")

    def __init__(self, timeout_ns: int) -> None:
        self._timeout_ns = timeout_ns
        self.trees: dict[int, tuple[Any, int, int, Any]] = {}
        """root -> (message id, emitted at, timeout counted from, values). The same object for life. Insertion order is
        deadline order: the timeout is the same for all, and a reset moves a tree to the end."""
        self.due_ns = 0
        """No tree expires before this; trees that are added later expire later."""

    def reset(self, root: int, now_ns: int) -> None:
        """Count the tree's timeout from now."""
        tree = self.trees.pop(root, None)
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
        return found

    @property
    def next_deadline_ns(self) -> int | None:
        """When the earliest tree times out."""
        for tree in self.trees.values():
            return tree[2] + self._timeout_ns
        return None
