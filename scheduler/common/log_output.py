"""The standard output of a daemon or worker: lines in its log.

Guarantees: a full log stops no process. Text that does not fit is left out, and the log tells how much once it has
room again. Any other error is raised.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LogFile(io.RawIOBase):
    """The raw file below `sys.stdout` or `sys.stderr`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._left_out = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: Any) -> int:
        try:
            if self._left_out:
                os.write(self._fd, f"[{self._left_out:,} bytes were left out here: there was no room]\n".encode())
                self._left_out = 0
            return os.write(self._fd, data)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self._left_out += len(data)
            return len(data)


def log_output() -> None:
    """Send Python's stdout and stderr through a `LogFile`. Call it when both descriptors are the log."""
    # Line by line: a reader must find whole lines while the process runs, and after a kill.
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.BufferedWriter(LogFile(fd)), before.encoding, before.errors, line_buffering=True)
        for fd, before in ((1, sys.stdout), (2, sys.stderr))
    )
