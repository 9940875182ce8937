"""The contiguous acked prefix of a source: how far it may be committed.

Acks come out of order. Committing the highest acked offset would lose every earlier one that is still pending when the
worker dies; only the prefix without holes may be committed (hazard H32; Storm's Kafka spout does the same).
"""

from __future__ import annotations

from collections.abc import Iterable


class AckedPrefix:
    """Offsets 0, 1, 2 ... of one partition. Pure; one thread."""

    __slots__ = ("_beyond", "committable")

    def __init__(self, start: int = 0, beyond: Iterable[int] = ()) -> None:
        self.committable = start
        """Every offset below this one is acked."""
        self._beyond: set[int] = set(beyond)

    def ack(self, offset: int) -> bool:
        """Offset is acked; whether `committable` rose. Acking an offset again changes nothing."""
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
        """Offsets acked past a hole. A source that keeps them too reads again only what was pending."""
        return sorted(self._beyond)
