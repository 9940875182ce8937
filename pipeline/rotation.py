"""The files of a log that is rotated, and which of them comes after which.

A log is PATH, and before it the files into which it was rotated: PATH.2 is older than PATH.1, PATH-20261121 (or
PATH.2026-11-21) older than PATH-20261122. Compressed files are not among them.

A file is known by its beginning, as its name changes when it is renamed, and its inode when it is copied and cut to
nothing ("copytruncate"). Guarantees that a file is taken for the one that was read only if it begins with all that is
known of that one's first 4 KiB. So two files are told apart unless these are equal. Thread: any.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

BEGINNING_BYTES = 4096
#: Of a longer line each part of so many bytes counts as a line.
READ_BYTES = 1 << 20
_DATE_DIGITS = 8


class LogFile(NamedTuple):
    path: Path
    beginning: bytes
    """Its whole lines in the first 4 KiB, or all of these; empty as long as it has no whole line."""


def log_files(path: Path) -> list[LogFile]:
    """Those that have a beginning, the oldest first."""
    rotated = []
    for other in path.parent.iterdir():
        suffix = re.fullmatch(r"[.-](\d[\d_T:.-]*)", other.name.removeprefix(path.name), re.ASCII)
        if suffix and other.name.startswith(path.name):
            rotated.append((_age(re.sub(r"\D", "", suffix[1])), other))
    files = [LogFile(one, beginning_of(one)) for one in (*(other for _, other in sorted(rotated)), path)]
    return [file for file in files if file.beginning]


def _age(digits: str) -> tuple[int, int]:
    """Sorts the oldest first: a date is the older the lower, a number the older the higher."""
    return (0, int(digits)) if len(digits) >= _DATE_DIGITS else (1, -int(digits))


def find(files: Sequence[LogFile], beginning: bytes) -> tuple[LogFile | None, LogFile | None]:
    """The file that begins so, and the one after it. If two do, a copy was made and the original not cut yet, so it is
    the newer. If none does, it was removed, and before it all that were older: the next is the oldest there is."""
    own = [index for index, file in enumerate(files) if beginning and file.beginning.startswith(beginning)]
    after = own[-1] + 1 if own else 0
    return files[own[-1]] if own else None, files[after] if after < len(files) else None


def beginning_of(path: Path) -> bytes:
    """As in `LogFile`; empty also if there is no such file. OSError if it cannot be read."""
    with contextlib.suppress(FileNotFoundError), _opened(path) as fd:
        data = os.pread(fd, BEGINNING_BYTES, 0) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        return data if len(data) == BEGINNING_BYTES else data[: data.rfind(b"\n") + 1]
    return b""


def read_lines(file: LogFile, offset: int, most: int | None, *, to_end: bool) -> list[bytes]:
    """Lines at `offset` with their ends, of `most` bytes together, a megabyte if None; with `to_end` also one that has
    no end yet. Empty if the file is another one by the time that they are read. OSError if it cannot be read."""
    with contextlib.suppress(FileNotFoundError), _opened(file.path) as fd:
        limit = READ_BYTES if most is None else min(most, READ_BYTES)
        data = os.pread(fd, limit, offset)
        if os.pread(fd, len(file.beginning), 0) != file.beginning:
            return []
        *lines, rest = data.split(b"\n")
        ended = [line + b"\n" for line in lines]
        is_line = not ended if len(data) == limit else to_end
        return [*ended, rest] if rest and is_line else ended
    return []


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe of such a name would be waited for
    try:
        yield fd
    finally:
        os.close(fd)
