"""The files of a log that is rotated: which there are, how they begin, and their lines.

A log is PATH, and before it the files into which it was rotated: PATH.2 is taken to be older than PATH.1, PATH-20261121
(or PATH.2026-11-21) older than PATH-20261122. Compressed files are not among them; they are only looked at to tell that
one was compressed before it was read.

A file is known by its inode and its beginning (`pipeline.generations`), as its name changes when it is renamed, and its
inode when it is copied and cut to nothing ("copytruncate"). Thread: any.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BEGINNING_BYTES = 4096
#: Of a longer line each part of so many bytes counts as a line.
READ_BYTES = 1 << 20
_DATE_DIGITS = 8
_NUMBER = r"[.-](\d[\d_T:.-]*)"
_FORMATS: dict[str, type[gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile]] = {
    "gz": gzip.GzipFile, "bz2": bz2.BZ2File, "xz": lzma.LZMAFile,
}  # fmt: skip


class LogFile(NamedTuple):
    path: Path
    inode: int
    size: int
    beginning: bytes
    """Its first 4 KiB, or all that there is."""


def log_files(path: Path) -> list[LogFile]:
    """Those that are not empty, the oldest first by their names, PATH last. A file with two names counts by the newer.
    OSError if one cannot be read."""
    rotated = []
    for other in path.parent.iterdir():
        number = re.fullmatch(_NUMBER, other.name.removeprefix(path.name), re.ASCII)
        if number and other.name.startswith(path.name):
            rotated.append((_age(re.sub(r"\D", "", number[1])), other))
    found: dict[int, LogFile] = {}
    for one in (*(other for _, other in sorted(rotated)), path):
        if file := log_file(one):
            found.pop(file.inode, None)
            found[file.inode] = file
    return list(found.values())


def _age(digits: str) -> tuple[int, int]:
    """Sorts the oldest first: a date is the older the lower, a number the older the higher."""
    return (0, int(digits)) if len(digits) >= _DATE_DIGITS else (1, -int(digits))


def log_file(path: Path) -> LogFile | None:
    """None if there is no such file, or it is empty or no file of text. OSError if it cannot be read."""
    with contextlib.suppress(FileNotFoundError), _opened(path) as fd:
        status = os.fstat(fd)
        beginning = os.pread(fd, min(status.st_size, BEGINNING_BYTES), 0) if stat.S_ISREG(status.st_mode) else b""
        return LogFile(path, status.st_ino, status.st_size, beginning) if beginning else None
    return None


def read_lines(file: LogFile, offset: int, most: int | None, *, to_end: bool) -> list[bytes]:
    """Lines at `offset` with their ends, of `most` bytes together, a megabyte if None; with `to_end` also one that has
    no end yet. Empty if the file is another one by the time that they are read. OSError if it cannot be read."""
    with contextlib.suppress(FileNotFoundError), _opened(file.path) as fd:
        limit = READ_BYTES if most is None else min(most, READ_BYTES)
        data = os.pread(fd, limit, offset)
        if os.fstat(fd).st_ino != file.inode or os.pread(fd, len(file.beginning), 0) != file.beginning:
            return []
        *lines, rest = data.split(b"\n")
        ended = [line + b"\n" for line in lines]
        is_line = not ended if len(data) == limit else to_end
        return [*ended, rest] if rest and is_line else ended
    return []


def compressed_files(path: Path) -> dict[int, Path]:
    """By their inodes the compressed files into which the log was rotated, of formats that can be looked into."""
    files = {}
    for other in path.parent.iterdir():
        suffix = other.name.removeprefix(path.name)
        if other.name.startswith(path.name) and re.fullmatch(rf"{_NUMBER}\.({'|'.join(_FORMATS)})", suffix, re.ASCII):
            with contextlib.suppress(FileNotFoundError):
                status = other.stat()
                if stat.S_ISREG(status.st_mode):
                    files[status.st_ino] = other
    return files


def beginning_of_compressed(path: Path) -> bytes:
    """As in `LogFile`; empty if it cannot be told."""
    try:
        with _FORMATS[path.suffix[1:]](path) as file:
            return file.read(BEGINNING_BYTES)
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return b""


def hold(file: LogFile) -> int | None:
    """A descriptor by which the file can be read also when its name is gone; see `held_file`. The caller closes it."""
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    if os.fstat(fd).st_ino == file.inode:
        return fd
    os.close(fd)
    return None


def held_file(fd: int) -> LogFile | None:
    """As `log_file`, of a descriptor."""
    return log_file(Path(f"/proc/self/fd/{fd}"))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe of such a name would be waited for
    try:
        yield fd
    finally:
        os.close(fd)
