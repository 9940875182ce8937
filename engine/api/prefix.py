"""The contiguous acked prefix of a source: the position up to which it may be committed.

Acks arrive out of order. If the highest acked offset were committed, the earlier ones still pending would be lost when
the worker dies; so only the prefix without holes may be (hazard H32; Storm's Kafka spout does the same).
"""

from __future__ import annotations

from collections.abc import Iterable


class AckedPrefix:
    """Tracks acks of offsets 0, 1, 2 ... of one partition. Pure. Thread: the caller's, one per object."""

    __slots__ = ("_beyond", "committable")

    def __init__(self, start: int = 0, beyond: Iterable[int] = ()) -> None:
        self.committable = start
        """Every offset below this one is acked."""
        self._beyond: set[int] = set(beyond)

    def ack(self, offset: int) -> bool:
        """Note an ack. Returns whether `committable` rose. Acking an offset again changes nothing."""
        if offset < self.committable:
            return False
        self._beyond.add(offset)
        if offset != self.committable:
            return False
        while self.committable in self._beyond:
            self._beyond.remove(self.committable)
            self.committable += 1
        return True

    def is_acked(self, offset: int) -> bool:
        """Whether this offset was acked, past a hole or not."""
        return offset < self.committable or offset in self._beyond

    @property
    def beyond(self) -> list[int]:
        """Offsets acked past a hole. A source that stores them too re-reads only the pending ones."""
        return sorted(self._beyond)
