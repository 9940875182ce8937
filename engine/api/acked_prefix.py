"""The contiguous acked prefix of a source: the position up to which it may be committed, and a file that keeps it.

Acks arrive out of order. If the highest acked position were committed, the earlier ones still pending would be lost
when the worker dies; so only the prefix without holes may be (Storm's Kafka spout does the same).

Relies on: the records following one another without a gap, each beginning where the one before it ends. A number in a
series ends at the next number. Of other positions, such as byte offsets, the caller says the end.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from typing import Any

from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import repr_of


class AckedPrefix:
    """Tells up to which position the records of a source are acked without a hole, although acks arrive out of order.
    Positions are record numbers, byte offsets, or any other values with an order. One object for each partition."""

    __slots__ = ("_ends", "committable")

    def __init__(self, start: Any = 0, beyond: Iterable[int] = ()) -> None:
        """Begin at position `start`; `beyond`: the stored `beyond` of an earlier object, of whole numbers."""
        self.committable = start
        """Every position below this one is acked; the source is to be read again from here."""
        self._ends: dict[Any, Any] = {one: one + 1 for one in beyond}

    def ack(self, position: Any, end: Any = None) -> bool:
        """Note the ack of the record at `position`; `end` is where the next record begins, by default `position + 1`.

        Returns True if `committable` rose. Acking a record again changes nothing. UsageError if `end` is missing and
        positions are no whole numbers, or if it is not beyond the position."""
        if position < self.committable:
            return False
        if end is None and isinstance(position, int):
            end = position + 1
        if end is None or not position < end:
            raise UsageError(
                f"a record at position {repr_of(position)} was acked with the end {repr_of(end)}; allowed: an end "
                "beyond the position, or none if positions are whole numbers that follow one another"
            )
        if position != self.committable:
            self._ends[position] = end
            return False
        self._ends.pop(position, None)
        while end in self._ends:
            end = self._ends.pop(end)
        self.committable = end
        return True

    def is_acked(self, position: Any) -> bool:
        """Return True if the record at this position was acked, past a hole or not."""
        return bool(position < self.committable) or position in self._ends

    @property
    def beyond(self) -> list[Any]:
        """Positions that are acked past a hole, sorted. A source that stores them too reads only pending records
        again."""
        return sorted(self._ends)


def is_unwritten(data: bytes) -> bool:
    """Return True for what is in a file that was made, and not written before its process was killed, or whose content
    was not on disk at a power loss."""
    return not data.strip(b"\0")


READS = 10
"""Times that a position is read before it counts as damaged."""


def position_line(position: int) -> bytes:
    """A position as it is written; always of the same length."""
    digits = b"%020d" % position
    return b"%s %08x\n" % (digits, zlib.crc32(digits))


class PositionFile:
    """A file with a position, one number and its checksum, which one process writes::

        00000000000000012288 5d1f3a09

    What is read was stored whole, or reading raises. Storing is one write in place: a new file under the old name took
    milliseconds of the worker's loop on ext4. A stored position survives every process; a power loss may leave an older
    one, or none. Relies on a write of 30 bytes at the begin of a file not being cut.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def load(self) -> int:
        """The position; 0 if none was stored. ClusterError if the file is damaged."""
        line = b""
        for _ in range(READS):  # an earlier life of the task may be writing still
            try:
                with open(self.path, "rb") as file:
                    line = file.read(64)
            except FileNotFoundError:
                return 0
            digits = line.partition(b" ")[0]
            if is_unwritten(line):
                return 0
            if digits.isdigit() and line == position_line(int(digits)):
                return int(digits)
        raise ClusterError(
            f"{self.path} holds {line!r}, which is no position; without this file, the source is read from its begin"
        )

    def store(self, position: int) -> None:
        """Store a position. Raises OSError."""
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, position_line(position), 0)
        finally:
            os.close(fd)
