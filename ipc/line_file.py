"""Files of lines that processes append to while others read.

Guarantees
    * A line is whole or absent: a reader sees no line that is being written, and the fragment of a writer that died is
      removed before the next line is written.
    * A line that does not fit (full disk, limit on the size of files) leaves nothing behind, and is an OSError that
      names the file.

Process: any of the owner's may read and write. A writer waits for another, for the time of one write.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from squall.ipc.private import naming

_BLOCK_BYTES = 4096


def append_line(path: Path, line: str) -> int:
    """Append a line, which holds no newline, to a file that may not exist yet; returns the file's size with it. OSError
    if there is no room."""
    left = line.encode() + b"\n"
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        before = _end_of_lines(fd)
        size = before + len(left)
        os.ftruncate(fd, before)
        try:
            # A death, or a full disk, may interrupt the write between pages.
            with naming(path):
                while left:
                    left = left[os.write(fd, left) :]
        except OSError:
            os.ftruncate(fd, before)
            raise
        return size
    finally:
        # Unlock: a process that was forked meanwhile shares the lock and would hold it.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def append_bounded(path: Path, line: str, most_bytes: int) -> None:
    """Append a line. A file that is longer then becomes the older one, which is kept instead of the one before."""
    if append_line(path, line) > most_bytes:
        path.rename(path.with_suffix(".old"))


def _end_of_lines(fd: int) -> int:
    """Offset of the end of the last whole line."""
    end = os.fstat(fd).st_size
    while end:
        begin = max(0, end - _BLOCK_BYTES)
        newline = os.pread(fd, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def read_lines(path: Path) -> list[bytes]:
    """Every whole line, without its newline; none if there is no such file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return data.split(b"\n")[:-1]


def read_lines_and_tail(path: Path) -> tuple[list[bytes], bytes]:
    """As `read_lines`, and the fragment after the last whole line, which a cut or the death of its writer has left."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return [], b""
    with file:
        fcntl.flock(file, fcntl.LOCK_SH)
        try:
            *lines, rest = file.read().split(b"\n")
        finally:
            # See `append_line`.
            fcntl.flock(file, fcntl.LOCK_UN)
    return lines, rest
