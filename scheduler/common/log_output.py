"""The standard output of a daemon or worker: lines in its log.

Guarantees
    * A full log stops no process. Text that does not fit is left out, and the log tells how much once it has room
      again. Any other error is raised.
    * A log does not grow without end: when it is longer than `ROTATE_BYTES`, it becomes LOG.1, that LOG.2 and so on up
      to `OLDER_LOGS`, and the oldest is removed. No line is cut by that.
    * Whatever writes to descriptors 1 and 2, such as native code, is in the new log from then on. A child process that
      inherited them writes to the old one.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import threading
from pathlib import Path
from typing import Any

_LINE_END = ord("\n")
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPERM})
"""EPERM: memory that is sealed against growth is full (`scheduler.forking.spare`)."""


ROTATE_BYTES = 64 << 20
OLDER_LOGS = 3


def older_log(path: Path, number: int) -> Path:
    """The log that was turned over so many times; 0 is the log itself."""
    return path.with_name(f"{path.name}.{number}") if number else path


class ProcessLog(io.RawIOBase):
    """The raw file below `sys.stdout` or `sys.stderr`. With a path it turns over the log behind both. Thread: any."""

    _turning = threading.Lock()

    def __init__(self, fd: int, path: str | Path | None = None, rotate_bytes: int = ROTATE_BYTES) -> None:
        self._fd = fd
        self._left_out = 0
        self.turn_over_at(path, rotate_bytes)

    def turn_over_at(self, path: str | Path | None, rotate_bytes: int) -> None:
        """Take the file behind the descriptors for the log at `path` from now on."""
        self._path = None if path is None else Path(path)
        self._rotate_bytes = rotate_bytes

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: Any) -> int:
        try:
            if self._left_out:
                os.write(self._fd, f"[{self._left_out:,} bytes were left out here: there was no room]\n".encode())
                self._left_out = 0
            written = os.write(self._fd, data)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self._left_out += len(data)
            return len(data)
        ends_line = data[written - 1] == _LINE_END
        if self._path is not None and ends_line and os.fstat(self._fd).st_size >= self._rotate_bytes:
            self._turn_over(self._path)
        return written

    def _turn_over(self, path: Path) -> None:
        with self._turning:
            try:
                # Another thread may just have done it, or a child of this process: then only the new log is opened.
                if os.path.samestat(os.fstat(self._fd), path.stat()):
                    for number in range(OLDER_LOGS, 0, -1):
                        with contextlib.suppress(FileNotFoundError):
                            older_log(path, number - 1).replace(older_log(path, number))
                log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError:
                # Its directory is gone, or there is no room for a name: this one goes on.
                return
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)


def log_output(path: str | Path | None, rotate_bytes: int = ROTATE_BYTES) -> list[ProcessLog]:
    """Send Python's stdout and stderr through a `ProcessLog` each, which are returned. Call it when both descriptors
    are the log at `path`, or a file that is no log (None).

    A log is UTF-8, whatever the locale of the shell; a text that is not is written with escapes, so that no print
    raises.
    """
    # Line by line: a reader must find whole lines while the process runs, and after a kill.
    logs = [ProcessLog(fd, path, rotate_bytes) for fd in (1, 2)]
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.BufferedWriter(log), "utf-8", "backslashreplace", line_buffering=True) for log in logs
    )
    return logs
