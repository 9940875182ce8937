"""A batch: consecutive tuples of one stream from one task to another, the unit that is queued and transported.

Its tuples are grouped in runs (see `engine.tuple`): run i covers rows `starts[i]` up to `starts[i + 1]`, belongs to the
tree `roots[i]` (0 = untracked) and is tracked under `edges[i]`. A run that belongs to several trees has its further
(root, edge) pairs in `others[i]`.
"""

from __future__ import annotations

from typing import Any


class Batch:
    """A batch on its way; one thread owns it at a time."""

    __slots__ = ("edges", "others", "roots", "rows", "source", "starts", "stream", "target")

    def __init__(self, source: int, stream: str, target: int) -> None:
        self.source = source
        """Task that emitted the tuples."""
        self.stream = stream
        self.target = target
        """Task that is to receive them."""
        self.rows: list[tuple[Any, ...]] = []
        self.starts: list[int] = []
        self.roots: list[int] = []
        self.edges: list[int] = []
        self.others: dict[int, tuple[tuple[int, int], ...]] | None = None

    @classmethod
    def untracked(cls, source: int, stream: str, target: int, values: tuple[Any, ...]) -> Batch:
        """One tuple that belongs to no tree."""
        batch = Batch(source, stream, target)
        batch.rows, batch.starts, batch.roots, batch.edges = [values], [0], [0], [0]
        return batch


class OpenBatch(Batch):
    """What one task has emitted to another since the last flush. Lives as long as the sending task, which is the only
    one to touch it; `take` moves the content out."""

    __slots__ = ("bits", "last", "mask")

    def __init__(self, source: int, stream: str, target: int, bits: dict[int, int]) -> None:
        super().__init__(source, stream, target)
        self.bits = bits
        """Target task -> bit of its worker's present incarnation, 0 if it is in this worker. Shared, kept current."""
        self.mask = 0
        """The target's bit when the batch was begun."""
        self.last: object = None
        """Marks the anchor of the last run: more tuples anchored to it continue the run. None while empty."""

    def take(self) -> Batch:
        """The content as a batch; this one is empty afterwards."""
        batch = Batch(self.source, self.stream, self.target)
        batch.rows, batch.starts, batch.roots, batch.edges = self.rows, self.starts, self.roots, self.edges
        batch.others, self.others = self.others, None
        self.rows, self.starts, self.roots, self.edges = [], [], [], []
        self.last = None
        return batch
