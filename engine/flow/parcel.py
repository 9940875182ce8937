"""A parcel: the batches and acks of one worker for another at one flush; a link numbers it and a codec encodes it.

Guarantees: batches of one sender for one task stay in their order, however a parcel is cut or put back; its tracking
messages are in one piece of it, once.

Relies on: each batch being weighed before it is added. Thread: the worker's loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from squall.engine.api.failure import Failure
from squall.engine.flow.anchoring import Acks
from squall.engine.flow.batch import LONG_ROWS, Batch


class Countdown:
    """Calls `done` at the `count`-th call of `step`."""

    __slots__ = ("_count", "_done")

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._count = count
        self._done = done

    def step(self) -> None:
        self._count -= 1
        if not self._count:
            self._done()


_LONG_ROW_BYTES = 64 * 1024
"""Buffers from this length on travel beside a frame (`ipc.codec.OUT_OF_BAND_BYTES`)."""
_BUFFERS = {bytes, bytearray}
_NO_BATCHES: deque[Batch] = deque(maxlen=0)


class Parcel:
    """Data batches and tracking messages for one worker."""

    __slots__ = (
        "acks", "answers", "batches", "bytes", "fails", "inits", "left_trees", "resets", "rows", "unread",
    )

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self.rows = 0
        """Tuples in the batches."""
        self.bytes = 0
        """Estimated memory of the batches that were weighed."""
        self.acks = Acks()
        """For ackers of the receiver."""
        self.inits: list[tuple[int, int, int, int]] = []
        """(root, xor, spout task, mask) of new trees whose acker is the receiver's."""
        self.fails: list[tuple[int, Failure]] = []
        self.resets: list[tuple[int, int]] = []
        """(root, 0) to an acker; (root, spout task) from an acker on to that spout."""
        self.answers: list[tuple[int, int, Failure | None]] = []
        """(spout task, root, failure or None), from ackers to spouts of the receiver."""
        self.unread: list[tuple[Batch, int, str]] = []
        """At the receiver: tuples that could not be decoded, each a batch of its own; position of the value, reason."""
        self.left_trees: list[Sequence[int]] = []
        """Roots of the trees of its tuples, once these have left."""

    def add(self, batch: Batch) -> None:
        """Append a weighed batch."""
        self.batches.append(batch)
        self.rows += len(batch.rows)
        self.bytes += batch.bytes

    def add_first(self, other: Parcel) -> None:
        """Put the batches of another parcel before all others; this parcel has none for their tasks."""
        self.batches.extendleft(reversed(other.batches))
        self.rows += other.rows
        self.bytes += other.bytes

    def cut(self, most_bytes: int, new_edge: Callable[[], int]) -> Parcel:
        """Keep all tracking messages, and batches of about `most_bytes`, one tuple at least; return a parcel with the
        rest. `new_edge`: see `Batch.split`."""
        rest, batches = Parcel(), self.batches
        rest.batches, rest.rows, rest.bytes = batches, self.rows, self.bytes
        self.batches, self.rows, self.bytes = deque(), 0, 0
        while batches:
            batch = batches[0]
            room = most_bytes - self.bytes
            if batch.bytes > room:
                rows = len(batch.rows)
                if rows > LONG_ROWS:
                    batches.popleft()
                    batches.extendleft(reversed(batch.pieces(new_edge)))
                    continue
                fitting = max(room * rows // batch.bytes, 0 if self.rows else 1)
                if not fitting:
                    break
                if fitting < rows:
                    self.add(batch.split(fitting, new_edge))
                    break
            self.add(batches.popleft())
        rest.rows -= self.rows
        rest.bytes -= self.bytes
        return rest

    def take_for(self, target: int) -> Parcel:
        """Take out the batches for one task, in their order."""
        taken, batches = Parcel(), self.batches
        self.batches, self.rows, self.bytes = deque(), 0, 0
        for batch in batches:
            (taken if batch.target == target else self).add(batch)
        return taken

    def let_go(self) -> None:
        """Drop its tuples, which have left; keep the roots of their trees, in case they do not arrive."""
        self.left_trees, self.batches = [batch.trees for batch in self.batches], _NO_BATCHES

    def lost_trees(self) -> set[int]:
        """Roots of the trees that lack tuples if the parcel does not arrive."""
        return set(filter(None, chain.from_iterable(self.left_trees)))

    def add_tracking(self, other: Parcel) -> None:
        """Add the tracking messages of another parcel."""
        self.acks.merge(other.acks)
        self.inits += other.inits
        self.fails += other.fails
        self.resets += other.resets
        self.answers += other.answers

    def put_back(self, batches: Iterable[Batch], size_bytes: int, rows: int) -> None:
        """Put batches with `rows` rows in all, which took `size_bytes` when encoded, before all others."""
        for batch in reversed(list(batches)):
            batch.bytes, batch.measured = max(1, size_bytes * len(batch.rows) // rows), True
            self.batches.appendleft(batch)
            self.rows += len(batch.rows)
            self.bytes += batch.bytes

    @property
    def is_of_buffers(self) -> bool:
        """True if its tuples are long, on average, and the first holds a buffer: then most is expected to travel
        beside the frame."""
        if not self.bytes > self.rows * _LONG_ROW_BYTES > 0:
            return False
        rows = self.batches[0].rows
        kinds = map(type, rows[0]) if type(rows) is list else ()
        return any(kind in _BUFFERS or hasattr(kind, "nbytes") for kind in kinds)

    @property
    def weight(self) -> int:
        """Tuples and messages in it, a measure for the work to encode it."""
        acks = self.acks
        return self.rows + len(acks.xors) + len(acks.blocks) + len(self.inits) + len(self.answers)

    def __bool__(self) -> bool:
        return bool(self.batches or self.acks or self.inits or self.fails or self.answers or self.resets)
