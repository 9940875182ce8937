"""The files of a log on disk, and which of them is which. Thread: any.

A *generation* is what a writer wrote at PATH between two rotations. Its file keeps its inode when it is renamed, and
its content when it is copied and PATH is cut; names only say in which order files come that were never seen at PATH.

Guarantees that a file is taken for a known generation only if it begins with all that is known of the generation's
first 4 KiB and is not shorter than what was read of it. Every other file is a generation of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

BEGINNING_BYTES = 4096
#: Longer lines are cut into parts of so many bytes.
READ_BYTES = 1 << 20
_DATE_DIGITS = 8
_ROTATED = re.compile(r"[.-](\d[\d_T:.-]*)", re.ASCII)


class LogFile(NamedTuple):
    """A file that is not empty."""

    path: Path
    inode: int
    size: int
    beginning: bytes
    """Its first 4 KiB, or all of it."""


def log_files(path: Path) -> list[LogFile]:
    """The files of a log, the oldest first by their names, PATH last. OSError if one cannot be read."""
    rotated = []
    for other in path.parent.iterdir():
        number = _ROTATED.fullmatch(other.name.removeprefix(path.name))
        if number and other.name.startswith(path.name):
            digits = re.sub(r"\D", "", number[1])
            # A date is the older the lower, a number the older the higher.
            age = (0, int(digits)) if len(digits) >= _DATE_DIGITS else (1, -int(digits))
            rotated.append((age, other))
    found = [log_file(one) for one in (*(other for _, other in sorted(rotated)), path)]
    return [*{file.inode: file for file in found if file is not None}.values()]


def log_file(path: Path) -> LogFile | None:
    """None if there is no such file, or it is empty or no file of text. OSError if it cannot be read."""
    with contextlib.suppress(FileNotFoundError), opened(path) as fd:
        status = os.fstat(fd)
        beginning = os.pread(fd, min(status.st_size, BEGINNING_BYTES), 0) if stat.S_ISREG(status.st_mode) else b""
        return LogFile(path, status.st_ino, status.st_size, beginning) if beginning else None
    return None


def read_lines(file: LogFile, offset: int, most: int | None, *, to_end: bool) -> list[bytes]:
    """Lines at `offset` with their ends, of `most` bytes together, a megabyte if None; with `to_end` also one that has
    no end yet. Empty if the file is another one by the time that they are read. OSError if it cannot be read."""
    with contextlib.suppress(FileNotFoundError), opened(file.path) as fd:
        limit = READ_BYTES if most is None else min(most, READ_BYTES)
        data = os.pread(fd, limit, offset)
        if os.fstat(fd).st_ino != file.inode or os.pread(fd, len(file.beginning), 0) != file.beginning:
            return []
        *lines, rest = data.split(b"\n")
        ended = [line + b"\n" for line in lines]
        is_line = not ended if len(data) == limit else to_end
        return [*ended, rest] if rest and is_line else ended
    return []


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe of such a name would be waited for
    try:
        yield fd
    finally:
        os.close(fd)


@dataclass(eq=False)
class Generation:
    inodes: tuple[int, ...]
    """Of its file, and of copies of it."""
    beginning: bytes
    read: int = 0
    """How many bytes of it were read."""
    is_left: bool = False
    """Whether the generations after it are read; lines that come to it nevertheless are read, too."""
    file: LogFile | None = None
    """None if there is none at the moment, or it is empty."""
    busy_ns: int = 0
    """When it had last grown, was the newest, or had no file yet."""

    def fits(self, file: LogFile) -> bool:
        return file.size >= self.read and file.beginning.startswith(self.beginning)

    def may_become(self, file: LogFile) -> bool:
        """Whether the file may be a copy of it that is not complete yet."""
        return self.beginning.startswith(file.beginning) or (
            file.size < self.read and file.beginning.startswith(self.beginning)
        )


def recognise(generations: Sequence[Generation], files: Iterable[LogFile], path: Path) -> list[LogFile]:
    """Set `file` of each generation, and return the files that belong to none, in their order."""
    found: dict[int, list[LogFile]] = {id(one): [] for one in generations}
    strangers: list[LogFile] = []
    unknown: list[LogFile] = []
    for file in files:
        own = _longest(one for one in generations if file.inode in one.inodes and one.fits(file))
        (strangers if own is None else found[id(own)]).append(file)
    for file in strangers:
        own = _longest(one for one in generations if one.fits(file) and _may_hold(file, found[id(one)], path))
        (unknown if own is None else found[id(own)]).append(file)
    for one in generations:
        mine = found[id(one)]
        newest = next((file for file in mine if file.path == path), None)
        if newest is not None and not all(is_copy(file, newest) for file in mine):
            # Cut since it was copied: what is at PATH now is another generation.
            mine.remove(newest)
            unknown.append(newest)
            newest = None
        one.file = newest or max(mine, key=lambda file: file.size, default=None)
        if one.file is not None:
            one.inodes, one.beginning = tuple(file.inode for file in mine), one.file.beginning
    return unknown


def is_copy(file: LogFile, newest: LogFile) -> bool:
    """Whether a file may be a copy of the one at PATH, which was not cut yet."""
    return file.size <= newest.size and newest.beginning.startswith(file.beginning)


def _longest(generations: Iterable[Generation]) -> Generation | None:
    return max(generations, key=lambda one: len(one.beginning), default=None)


def _may_hold(file: LogFile, others: Sequence[LogFile], path: Path) -> bool:
    """Whether a file of another inode may hold a generation, or a copy, as others do. What is at PATH is no copy. Only
    it is copied; but a file that is alike for 4 KiB is taken for a copy of any."""
    return not others or (file.path != path and any(
        other.path == path or (len(file.beginning) == BEGINNING_BYTES and file.beginning == other.beginning)
        for other in others
    ))
