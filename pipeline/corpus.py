"""Finds the text files of an input and splits them into lines, by bytes: the only code that decides where a line ends.

Guarantees that every line of every file found is given once, either as text or as a quarantined line with the reason,
and that the same files give the same lines in the same order. A line ends at \\n (or \\r\\n) only: U+2028, U+0085,
\\x1c and a lone \\r are ordinary characters of a line. Memory is bounded by `MAX_LINE_BYTES`, whatever the file. Relies
on nothing of Spark: it runs on the driver (find_files, balance) and in Spark's Python workers (read_file).
"""

from __future__ import annotations

import fnmatch
import heapq
import os
import stat
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from squall.engine.errors import UsageError

#: Bytes of a line; longer ones are quarantined: such a tuple is a blob, not a line, and would hold up a whole batch.
MAX_LINE_BYTES = 1 << 20
#: Bytes stored of a quarantined line: enough to recognise it, few enough for a table of them.
MAX_RAW_BYTES = 64 << 10
#: Bytes of a file searched for a NUL before it counts as text; as many as git and grep search.
BINARY_PROBE_BYTES = 8 << 10

REASON_NUL = "NUL byte"
REASON_NOT_UTF8 = "not UTF-8"
REASON_TOO_LONG = "longer than 1 MiB"

_BOM = b"\xef\xbb\xbf"
_SKIPPED_DIRECTORIES = frozenset({"__pycache__", "site-packages"})


@dataclass(frozen=True)
class InputFile:
    """One file to read: `name` is relative to the input and always valid Unicode, `location` is the path for open().

    A file or directory that could not be examined has a `problem`, for which it is quarantined.
    """

    name: str
    location: str
    size_bytes: int = 0
    problem: str = ""


@dataclass(frozen=True)
class Corpus:
    """The content of an input: the files to read and the names of those skipped as binary, both in order of name."""

    root: str
    files: tuple[InputFile, ...]
    skipped_binary: tuple[str, ...] = ()


class Line(NamedTuple):
    """One line of a file: `text` without its terminator, or `reason` and the first bytes, `raw`, if it was refused.

    line_no counts from 1; 0 stands for the file as a whole.
    """

    line_no: int
    text: str | None
    reason: str | None = None
    raw: bytes | None = None


def default_input() -> tuple[Path, str]:
    """The default input and pattern: the source of this interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib")), "*.py"


def find_files(source: Path, pattern: str | None = None, exclude: Iterable[Path] = ()) -> Corpus:
    """Find every regular file of `source`, a directory or one file. Reads the first bytes of each; driver only.

    In a directory, hidden files and folders, __pycache__, site-packages, everything under `exclude` and files with a
    NUL in their first 8 KiB are left out. `pattern` is a shell pattern on the file name, or on the relative path if it
    has a slash.
    """
    try:
        mode = source.stat().st_mode
    except OSError as error:
        raise UsageError(f"cannot read input {source}: {error.strerror}") from error
    if stat.S_ISREG(mode):
        return _one_file(source, pattern)
    if not stat.S_ISDIR(mode):
        raise UsageError(f"input {source} is neither a directory nor a regular file")
    try:
        os.scandir(source).close()
    except OSError as error:
        raise UsageError(f"cannot read input directory {source}: {error.strerror}") from error
    excluded = {os.path.realpath(path) for path in exclude}
    files: list[InputFile] = []
    skipped: list[str] = []
    for file in _walk(source, pattern, excluded):
        if file.problem == "" and _looks_binary(file.location):
            skipped.append(file.name)
        else:
            files.append(file)
    files.sort(key=lambda file: file.name)
    return Corpus(str(source), tuple(files), tuple(sorted(skipped)))


def balance(files: Sequence[InputFile], partitions: int) -> list[list[InputFile]]:
    """Deal the files out so that partitions hold about the same number of bytes; each partition is in order of name.

    Largest first, always to the partition with the least so far: the same files always end up in the same partition.
    """
    dealt: list[list[InputFile]] = [[] for _ in range(partitions)]
    loads = [(0, index) for index in range(partitions)]
    for file in sorted(files, key=lambda file: (-file.size_bytes, file.name)):
        load_bytes, index = loads[0]
        dealt[index].append(file)
        # Empty and vanished files still cost a little, so spread them too.
        heapq.heapreplace(loads, (load_bytes + max(file.size_bytes, 1), index))
    for chosen in dealt:
        chosen.sort(key=lambda file: file.name)
    return dealt


def read_file(file: InputFile) -> Iterator[Line]:
    """Read all lines of one file in order. An unreadable file gives a line 0 with the reason, not an exception."""
    if file.problem:
        yield Line(0, None, file.problem, b"")
        return
    line_no = 0
    try:
        with open(file.location, "rb") as stream:
            for line_no, (raw, complete) in enumerate(_raw_lines(stream), 1):
                yield _judge(line_no, raw, complete)
    except OSError as error:
        after = f" after line {line_no}" if line_no else ""
        yield Line(0, None, f"cannot be read{after}: {error.strerror}", b"")


def _judge(line_no: int, raw: bytes, complete: bool) -> Line:
    if not complete or len(raw) > MAX_LINE_BYTES:
        reason = REASON_TOO_LONG
    elif b"\0" in raw:
        reason = REASON_NUL
    else:
        try:
            return Line(line_no, raw.decode("utf-8"))
        except UnicodeDecodeError:
            reason = REASON_NOT_UTF8
    return Line(line_no, None, reason, raw[:MAX_RAW_BYTES])


def _raw_lines(stream: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """(line without terminator, True), or for a line that is too long (its beginning, False); the rest is skipped."""
    if stream.read(len(_BOM)) != _BOM:
        stream.seek(0)
    limit = MAX_LINE_BYTES + 2
    while raw := stream.readline(limit):
        if raw.endswith(b"\r\n"):
            yield raw[:-2], True
        elif raw.endswith(b"\n"):
            yield raw[:-1], True
        elif len(raw) < limit:
            yield raw, True
        else:
            yield raw, False
            while raw and not raw.endswith(b"\n"):
                raw = stream.readline(limit)


def _one_file(source: Path, pattern: str | None) -> Corpus:
    if pattern is not None:
        raise UsageError(f"a pattern ({pattern}) needs a directory as input; {source} is a file")
    try:
        with source.open("rb"):
            size_bytes = source.stat().st_size
    except OSError as error:
        raise UsageError(f"cannot read input {source}: {error.strerror}") from error
    return Corpus(str(source), (InputFile(_unicode(source.name), str(source.absolute()), size_bytes),))


def _walk(source: Path, pattern: str | None, excluded: set[str]) -> Iterator[InputFile]:
    unreadable: list[OSError] = []
    root = str(source.absolute())
    for folder, folders, names in os.walk(root, onerror=unreadable.append):
        folders[:] = [name for name in folders if _wanted_folder(folder, name, excluded)]
        for name in names:
            location = os.path.join(folder, name)
            relative = os.path.relpath(location, root)
            if not name.startswith(".") and (pattern is None or _matches(relative, pattern)):
                file = _look_at(location, _unicode(relative))
                if file is not None:
                    yield file
    for error in unreadable:
        location = str(error.filename)
        relative = os.path.relpath(location, root)
        yield InputFile(_unicode(relative), location, problem=f"directory cannot be read: {error.strerror}")


def _wanted_folder(parent: str, name: str, excluded: set[str]) -> bool:
    if name.startswith(".") or name in _SKIPPED_DIRECTORIES:
        return False
    return not excluded or os.path.realpath(os.path.join(parent, name)) not in excluded


def _matches(relative: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(relative if "/" in pattern else os.path.basename(relative), pattern)


def _look_at(location: str, name: str) -> InputFile | None:
    """The file, or None for a socket, pipe or device: those hold no lines."""
    try:
        status = os.stat(location)
    except OSError as error:
        return InputFile(name, location, problem=f"cannot be read: {error.strerror}")
    return InputFile(name, location, status.st_size) if stat.S_ISREG(status.st_mode) else None


def _looks_binary(location: str) -> bool:
    try:
        with open(location, "rb") as stream:
            return b"\0" in stream.read(BINARY_PROBE_BYTES)
    except OSError:
        # Its content is unknown: read_file meets the same error and quarantines the file with the reason.
        return False


def _unicode(name: str) -> str:
    """A file name that UTF-8 can carry: bytes that are not UTF-8 are shown as \\xNN."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
