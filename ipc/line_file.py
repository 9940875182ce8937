"""Files of lines that processes append to while others read.

Guarantees
    * A line is there whole or not at all: who reads sees no line that is still being written, and what a writer left
      that died in the middle of one is gone before the next is written.
    * A line that does not fit (full disk, limit on the size of files) leaves nothing behind, and is an OSError that
      names the file.

Any process of the owner may read and write. Writers wait for each other: for the time of one write.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from squall.ipc.private import naming

_BLOCK_BYTES = 4096


def append_line(path: Path, line: str) -> int:
    """Write a line, which holds no newline, at the end of a file that may not be there yet; the file's size with it.
    OSError if there is no room."""
    left = line.encode() + b"\n"
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        before = _end_of_lines(fd)
        size = before + len(left)
        os.ftruncate(fd, before)
        try:
            # A page at a time is what a death may interrupt, and a disk that fills up.
            with naming(path):
                while left:
                    left = left[os.write(fd, left) :]
        except OSError:
            os.ftruncate(fd, before)
            raise
        return size
    finally:
        # A process that was forked meanwhile has the same lock, and would keep it.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _end_of_lines(fd: int) -> int:
    """Where the last whole line ends."""
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
    """The same, and what comes after the last line while nobody writes: of a line that was cut, or that its writer died
    in the middle of."""
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
