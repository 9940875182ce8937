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
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


ROTATE_BYTES = 64 << 20
OLDER_LOGS = 3
_LOOK_BYTES = 64 << 10
"""Bytes that a process writes between two looks at the size of its log."""


class Rotation:
    """Turns over the log behind descriptors 1 and 2. Thread: any."""

    def __init__(self, path: str | os.PathLike[str], rotate_bytes: int = ROTATE_BYTES) -> None:
        self._path = Path(path)
        self._rotate_bytes = rotate_bytes
        self._look_bytes = min(_LOOK_BYTES, rotate_bytes)
        self._written = 0
        self._lock = threading.Lock()

    def wrote(self, count: int) -> None:
        """Note that so many bytes, which end a line, were written."""
        self._written += count
        if self._written >= self._look_bytes and self._lock.acquire(blocking=False):
            try:
                self._written = 0
                self._look()
            finally:
                self._lock.release()

    def _look(self) -> None:
        now = os.fstat(1)
        if now.st_size < self._rotate_bytes:
            return
        try:
            there = os.stat(self._path)
            # If they differ, a child of this process has turned it over.
            if os.path.samestat(now, there):
                self._turn_over()
            log = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            # Its directory is gone, or there is no room for a name: this one goes on.
            return
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)

    def _turn_over(self) -> None:
        for number in range(OLDER_LOGS, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                older_log(self._path, number - 1).replace(older_log(self._path, number))


def older_log(path: Path, number: int) -> Path:
    """The log that was turned over so many times; 0 is the log itself."""
    return path.with_name(f"{path.name}.{number}") if number else path


class LogFile(io.RawIOBase):
    """The raw file below `sys.stdout` or `sys.stderr`."""

    def __init__(self, fd: int, rotation: Rotation | None = None) -> None:
        self._fd = fd
        self._left_out = 0
        self._rotation = rotation

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
            if self._rotation is not None and written and data[written - 1] == _LINE_END:
                self._rotation.wrote(written)
            return written
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self._left_out += len(data)
            return len(data)


def log_output(path: str | os.PathLike[str], rotate_bytes: int = ROTATE_BYTES) -> None:
    """Send Python's stdout and stderr through a `LogFile`. Call it when both descriptors are the log at `path`.

    A log is UTF-8, whatever the locale of the shell; a text that is not is written with escapes, so that no print
    raises.
    """
    rotation = Rotation(path, rotate_bytes)
    # Line by line: a reader must find whole lines while the process runs, and after a kill.
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.BufferedWriter(LogFile(fd, rotation)), "utf-8", "backslashreplace", line_buffering=True)
        for fd in (1, 2)
    )
