"""A parcel: what one worker has to say to another at one flush; the unit that a link numbers and a codec encodes."""

from __future__ import annotations

from collections.abc import Mapping

from engine.batch import Batch
from engine.failure import Failure


class Parcel:
    """Data batches and tracking messages for one worker."""

    __slots__ = ("acks", "answers", "batches", "fails", "inits", "resets", "rows", "workers")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.rows = 0
        """Tuples in the batches."""
        self.acks: dict[int, int] = {}
        """root -> XOR, for ackers that live there."""
        self.workers: dict[int, int] = {}
        """root -> mask of workers its tuples were sent to."""
        self.inits: list[tuple[int, int, int, int]] = []
        """(root, xor, spout task, workers) of new trees whose acker lives there."""
        self.fails: list[tuple[int, Failure]] = []
        self.resets: list[tuple[int, int]] = []
        """(root, spout task or 0): to an acker with task 0, from an acker on to the spout with its task."""
        self.answers: list[tuple[int, int, Failure | None]] = []
        """(spout task, root, failure or None), from ackers to spouts that live there."""

    def add_acks(self, acks: Mapping[int, int], workers: Mapping[int, int]) -> None:
        """Merge XORs and worker masks, by root, for ackers that live there."""
        mine = self.acks
        if not mine:
            mine.update(acks)
        else:
            for root, value in acks.items():
                mine[root] = mine.get(root, 0) ^ value
        for root, mask in workers.items():
            self.workers[root] = self.workers.get(root, 0) | mask

    @property
    def weight(self) -> int:
        """Tuples and messages in it: how much work it is to encode."""
        return self.rows + len(self.acks) + len(self.inits) + len(self.answers)

    def __bool__(self) -> bool:
        tracking = self.acks or self.workers or self.inits or self.fails or self.answers or self.resets
        return bool(self.batches or tracking)
