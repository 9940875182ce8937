"""A position that outlives the process which stores it: one number and its checksum, in a file.

::

    00000000000000012288 5d1f3a09

Guarantees: what is read was stored whole, or reading raises. Storing is one write in place: a new file under the old
name took milliseconds of the worker's loop on ext4. A stored position survives every process, though not a power loss.

Relies on: a write of 30 bytes at the begin of a file not being cut by a kill. Thread: the caller's.
"""

from __future__ import annotations

import os
import zlib

from squall.engine.errors import ClusterError

READS = 10
"""Times that a position is read before it counts as damaged."""


def position_line(position: int) -> bytes:
    """A position as it is written; always of the same length."""
    digits = b"%020d" % position
    return b"%s %08x\n" % (digits, zlib.crc32(digits))


class PositionFile:
    """A file with a position, which one process writes."""

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
            if not line:  # killed between its making and the first write
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
