"""A parcel: what one worker has to say to another at one flush; the unit that a link numbers and a codec encodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from squall.engine.api.failure import Failure
from squall.engine.flow.batch import Batch

_NO_BATCHES: deque[Batch] = deque(maxlen=0)


class Parcel:
    """Data batches and tracking messages for one worker."""

    __slots__ = (
        "acks", "answers", "batches", "bytes", "fails", "inits", "left_roots", "masks", "resets", "rows", "unread",
    )

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self.rows = 0
        """Tuples in the batches."""
        self.bytes = 0
        """About how much memory these hold, where somebody has asked."""
        self.acks: dict[int, int] = {}
        """root -> XOR, for ackers that live there."""
        self.masks: dict[int, int] = {}
        """root -> mask of the workers its tuples were sent to."""
        self.inits: list[tuple[int, int, int, int]] = []
        """(root, xor, spout task, mask) of new trees whose acker lives there."""
        self.fails: list[tuple[int, Failure]] = []
        self.resets: list[tuple[int, int]] = []
        """(root, spout task or 0): to an acker with task 0, from an acker on to the spout with its task."""
        self.answers: list[tuple[int, int, Failure | None]] = []
        """(spout task, root, failure or None), from ackers to spouts that live there."""
        self.unread: list[tuple[Batch, int, str]] = []
        """At the receiver: tuples that could not be read, each a batch of its own; position of the value, and why."""
        self.left_roots: list[Iterable[int]] = []
        """Roots of the trees that its tuples belonged to, when these have left."""

    def add(self, batch: Batch) -> None:
        """Append a batch that has been weighed."""
        self.batches.append(batch)
        self.rows += len(batch.rows)
        self.bytes += batch.bytes

    def add_first(self, other: Parcel) -> None:
        """Put the batches of another parcel, for tasks that this one has none for, before all others."""
        self.batches.extendleft(reversed(other.batches))
        self.rows += other.rows
        self.bytes += other.bytes

    def add_acks(self, acks: Mapping[int, int], masks: Mapping[int, int]) -> None:
        """Merge XORs and masks, by root, for ackers that live there."""
        mine = self.acks
        if not mine:
            mine.update(acks)
        else:
            for root, value in acks.items():
                mine[root] = mine.get(root, 0) ^ value
        for root, mask in masks.items():
            self.masks[root] = self.masks.get(root, 0) | mask

    def cut(self, most_bytes: int, new_edge: Callable[[], int]) -> Parcel:
        """Take out what there is of tracking, and batches of about `most_bytes`, one tuple at least; this parcel keeps
        the rest. `new_edge`: see `Batch.split`."""
        head, batches = Parcel(), self.batches
        head.take_tracking(self)
        while batches:
            batch = batches[0]
            room = most_bytes - head.bytes
            if batch.bytes > room:
                rows = len(batch.rows)
                fitting = max(room * rows // batch.bytes, 0 if head.rows else 1)
                if not fitting:
                    break
                if fitting < rows:
                    head.add(batch.split(fitting, new_edge))
                    break
            head.add(batches.popleft())
        self.rows -= head.rows
        self.bytes -= head.bytes
        return head

    def take_for(self, target: int) -> Parcel:
        """Take out the batches for one task, in their order."""
        taken, batches = Parcel(), self.batches
        self.batches, self.rows, self.bytes = deque(), 0, 0
        for batch in batches:
            (taken if batch.target == target else self).add(batch)
        return taken

    def let_go(self) -> None:
        """Its tuples have left: keep of them what their loss would be a loss to, the roots of their trees."""
        batches, self.batches = self.batches, _NO_BATCHES
        self.left_roots = [batch.roots for batch in batches]
        for batch in batches:
            if batch.others is not None:
                self.left_roots.append([root for pairs in batch.others.values() for root, _ in pairs])

    def lost_trees(self) -> set[int]:
        """Roots of the trees that lack something if what has left does not arrive."""
        return {root for roots in self.left_roots for root in roots if root}

    def add_tracking(self, other: Parcel) -> None:
        """Say what another parcel says of trees, too."""
        self.add_acks(other.acks, other.masks)
        self.inits += other.inits
        self.fails += other.fails
        self.resets += other.resets
        self.answers += other.answers

    def take_tracking(self, other: Parcel) -> None:
        """Move what another parcel has of tracking to this one, which has none."""
        self.acks, other.acks = other.acks, {}
        self.masks, other.masks = other.masks, {}
        self.inits, other.inits = other.inits, []
        self.fails, other.fails = other.fails, []
        self.resets, other.resets = other.resets, []
        self.answers, other.answers = other.answers, []

    def put_back(self, batches: Iterable[Batch], size_bytes: int, rows: int) -> None:
        """Put batches of so many rows in all before all others: encoded they turned out to have `size_bytes`."""
        for batch in reversed(list(batches)):
            batch.bytes, batch.measured = max(1, size_bytes * len(batch.rows) // rows), True
            self.batches.appendleft(batch)
            self.rows += len(batch.rows)
            self.bytes += batch.bytes

    @property
    def weight(self) -> int:
        """Tuples and messages in it: how much work it is to encode."""
        return self.rows + len(self.acks) + len(self.inits) + len(self.answers)

    def __bool__(self) -> bool:
        tracking = self.acks or self.masks or self.inits or self.fails or self.answers or self.resets
        return bool(self.batches or tracking)
