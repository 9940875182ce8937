"""The standard output of a daemon or worker: lines in its log, which is turned over, and followed by those who show it
in a terminal.

Guarantees
    * A full log stops no process. Text that does not fit is left out, and the log tells how much once it has room
      again. Any other error is raised.
    * A log does not grow without end: when it is longer than `ROTATE_BYTES`, it becomes LOG.1, that LOG.2 and so on up
      to `OLDER_LOGS`, and the oldest is removed. No line is cut by that.
    * Whatever writes to descriptors 1 and 2, such as native code, is in the new log from then on. A child process that
      inherited them writes to the old one.
    * `LogTail` gives every line once, whole and in order, of older logs, too; one call reads to the end, so the last
      call loses nothing but a line without an end. A log that was cut is read again from its start.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import os
import sys
import threading
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from squall.engine.foreign.text import plain

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


class LogTail:
    """Lines that workers have written since this was made, or since the last call. Process: any; one thread."""

    def __init__(self, directory: Path, from_start: bool = False) -> None:
        """`directory` holds logs, or directories of logs; `from_start`: lines that are there already count as new."""
        self._directory = directory
        self._rests: dict[str, bytes] = {}
        self._places: dict[str, tuple[int, int]] = {}
        """Name of a log -> inode and offset up to which it is read."""
        if not from_start:
            for name, _ in self._logs():
                found = os.stat(directory / name)
                self._places[name] = found.st_ino, found.st_size

    def poll(self) -> list[tuple[str, str]]:
        """(worker, line) of every new complete line, per worker in order."""
        return [(worker, line) for name, worker in self._logs() for line in self._read(name)]

    @property
    def workers(self) -> list[str]:
        """The workers that have logs."""
        return [worker for _, worker in self._logs()]

    def _logs(self) -> list[tuple[str, str]]:
        """(file, worker) of every worker's log."""
        logs = []
        # Unlike Path.glob, this passes over folders that are removed meanwhile.
        matches = (glob.glob(form, root_dir=self._directory, include_hidden=True) for form in ("*.log", "*/*.log"))
        for name in sorted(chain.from_iterable(matches)):
            node, _, port = os.path.basename(name).removesuffix(".log").rpartition("-")
            if port.isdigit() and not node.startswith("supervisor"):
                logs.append((name, f"{node}:{port}"))
        return logs

    def _read(self, name: str) -> list[str]:
        data = b""
        for file in self._unread(name):
            with file:
                data += self._rest_of(name, file)
        *complete, rest = (self._rests.pop(name, b"") + data).split(b"\n")
        if rest:
            self._rests[name] = rest
        return [line.decode("utf-8", "replace") for line in complete]

    def _unread(self, name: str) -> list[BinaryIO]:
        """The log, and before it those that were turned over since the last call, the oldest first."""
        inode, _ = self._places.get(name, (0, 0))
        files: dict[int, BinaryIO] = {}
        for number in range(OLDER_LOGS + 1):
            try:
                file = open(older_log(self._directory / name, number), "rb")  # noqa: SIM115
            except FileNotFoundError:
                break
            found = os.fstat(file.fileno()).st_ino
            if found in files:
                # It was turned over between two steps of this loop.
                file.close()
                continue
            files[found] = file
            if found == inode:
                break
        return list(reversed(files.values()))

    def _rest_of(self, name: str, file: BinaryIO) -> bytes:
        found = os.fstat(file.fileno())
        inode, start = self._places.get(name, (0, 0))
        if inode != found.st_ino:
            start = 0
        elif found.st_size < start:
            self._rests.pop(name, None)
            start = 0
        file.seek(start)
        data = file.read(found.st_size - start)
        self._places[name] = found.st_ino, file.tell()
        return data


def log_line(worker: str, line: str) -> str:
    """A line of a worker's log for a terminal: one line without control characters, whatever the worker printed."""
    return f"[{worker}] " + plain(line, keep="\t")
