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
import re
import stat
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from squall.engine.errors import UsageError
from squall.pipeline.feed.manifest import MANIFEST_NAME, ROWS_NAME
from squall.pipeline.read.opened import first_bytes, is_compressed, opened

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
#: Bytes read at a time: what is longer than a line may be is looked at line by line.
_BLOCK_BYTES = MAX_LINE_BYTES // 2
_SKIPPED_DIRECTORIES = frozenset({"__pycache__", "site-packages"})
_FEED = "a feed"
#: What a run of prepare holds beside a feed.
_STAGING = re.compile(r".+\.(tmp|old)-prepare-\d+")
#: Directories that Squall writes, by names that only such a directory holds together.
_MARKS = {
    _FEED: {MANIFEST_NAME},
    "a result of word_count.py": {"ledger", "counts"},
    "a checkpoint of --on spark": {"topology.json", "control.pickle"},
    "a run directory": {"nimbus.db", "lock"},
}


@dataclass(frozen=True)
class InputFile:
    """One file to read: `name` is relative to the input and always valid Unicode, `location` is the path for open().

    A file or directory that could not be examined has a `problem`, for which it is quarantined.
    """

    name: str
    location: str
    size_bytes: int = 0
    problem: str = ""
    mtime_ns: int = 0
    start_bytes: int = 0
    """Where to begin: what is before has been read."""
    start_line: int = 0
    """The lines before."""
    start_sha256: str = ""
    """Checksum of what is before."""


@dataclass(frozen=True)
class Corpus:
    """The content of an input: the files to read and the names of those skipped as binary, both in order of name."""

    root: str
    files: tuple[InputFile, ...]
    skipped_binary: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Directories that Squall wrote, each with its kind."""


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


def find_files(
    source: Path, pattern: str | None = None, exclude: Iterable[Path] = (), *, is_text: bool = True
) -> Corpus:
    """Find every regular file of `source`, a directory or one file. Reads the first bytes of each; driver only.

    In a directory, hidden files and folders, __pycache__, site-packages, everything under `exclude`, directories that
    Squall wrote and files with a NUL in their first 8 KiB, decompressed if need be, are left out. Of other files than
    text, those with a NUL stay, and what begins with an underscore is left out, as Spark does. `pattern` is a shell
    pattern on the file name, or on the relative path if it has a slash. UsageError if `source` is a feed itself.
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
        kind = _kind_of("", os.listdir(source))
    except OSError as error:
        raise UsageError(f"cannot read input directory {source}: {error.strerror}") from error
    if kind == _FEED:
        raise UsageError(
            f"input {source} is a feed itself, which FeedSpout reads; to prepare its rows, give {source / ROWS_NAME} "
            "with --format parquet"
        )
    excluded = {os.path.realpath(path) for path in exclude}
    files: list[InputFile] = []
    skipped: list[str] = []
    left_out: list[str] = []
    for file in _walk(source, pattern, excluded, left_out):
        if not is_text and any(name.startswith("_") for name in file.name.split("/")):
            continue
        if file.problem or not is_text:
            files.append(file)
        elif probed := _probed(file):
            files.append(probed)
        else:
            skipped.append(file.name)
    files.sort(key=lambda file: file.name)
    return Corpus(str(source), tuple(files), tuple(sorted(skipped)), tuple(sorted(left_out)))


def balance(files: Sequence[InputFile], partitions: int) -> list[list[InputFile]]:
    """Deal the files out so that partitions hold about the same number of bytes; each partition is in order of name.

    Largest first, always to the partition with the least so far: the same files always end up in the same partition.
    """
    dealt: list[list[InputFile]] = [[] for _ in range(partitions)]
    loads = [(0, index) for index in range(partitions)]
    for file in sorted(files, key=lambda file: (file.start_bytes - file.size_bytes, file.name)):
        load_bytes, index = loads[0]
        dealt[index].append(file)
        # Empty and vanished files still cost a little, so spread them too.
        heapq.heapreplace(loads, (load_bytes + max(file.size_bytes - file.start_bytes, 1), index))
    for chosen in dealt:
        chosen.sort(key=lambda file: file.name)
    return dealt


class Chunk(NamedTuple):
    """Neighbouring lines: the texts, the number of each, and the lines among them that were refused."""

    line_nos: Sequence[int]
    texts: list[str]
    refused: list[Line]


def read_file(file: InputFile) -> Iterator[Line]:
    """Read all lines of one file in order. An unreadable file gives a line 0 with the reason, not an exception."""
    for chunk in read_chunks(file):
        lines = [Line(line_no, text) for line_no, text in zip(chunk.line_nos, chunk.texts, strict=True)]
        yield from sorted([*lines, *chunk.refused], key=lambda line: line.line_no)


def read_chunks(file: InputFile, note: Callable[[str], None] = lambda sha256: None) -> Iterator[Chunk]:
    """Read all lines of one file in order, as `read_file`, but many at a time. `note` gets the checksum of the file."""
    if file.problem:
        yield Chunk((), [], [Line(0, None, file.problem, b"")])
        return
    line_no = file.start_line
    try:
        with opened(file) as (stream, digested):
            for block in _blocks(stream, begins=not file.start_bytes):
                lines = block.split(b"\n")
                # What follows the last end of line is a line only if there is something.
                texts = _texts(block) if len(block) <= MAX_LINE_BYTES else None
                count = len(lines) - (not lines[-1])
                if texts is None:
                    yield _judged(line_no + 1, lines[:count], block.endswith(b"\n"))
                else:
                    yield Chunk(range(line_no + 1, line_no + count + 1), texts[:count], [])
                line_no += count
            digested.check_end()
            note(digested.sha256)
    except OSError as error:
        after = f" after line {line_no}" if line_no else ""
        yield Chunk((), [], [Line(0, None, f"cannot be read{after}: {error.strerror or error}", b"")])


def last_line(chunk: Chunk, before: int) -> int:
    """The number of the last line so far, be it text or not."""
    return max(before, *chunk.line_nos[-1:], *(line.line_no for line in chunk.refused[-1:]))


def _texts(block: bytes) -> list[str] | None:
    """The lines of a block without their ends; None if there is one that is no text."""
    if b"\0" in block:
        return None
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text.replace("\r\n", "\n").split("\n")


def _judged(line_no: int, lines: list[bytes], is_ended: bool) -> Chunk:
    """The lines of a block in which not all are text. `is_ended`: the last one is not the last of the file."""
    judged = []
    for index, line in enumerate(lines):
        raw = line.removesuffix(b"\r") if is_ended or index < len(lines) - 1 else line
        judged.append(_judge(line_no + index, raw))
    good = [line for line in judged if line.text is not None]
    refused = [line for line in judged if line.text is None]
    return Chunk([line.line_no for line in good], [line.text or "" for line in good], refused)


def _judge(line_no: int, raw: bytes) -> Line:
    if len(raw) > MAX_LINE_BYTES:
        reason = REASON_TOO_LONG
    elif b"\0" in raw:
        reason = REASON_NUL
    else:
        try:
            return Line(line_no, raw.decode("utf-8"))
        except UnicodeDecodeError:
            reason = REASON_NOT_UTF8
    return Line(line_no, None, reason, raw[:MAX_RAW_BYTES])


def _blocks(stream: BinaryIO, *, begins: bool) -> Iterator[bytes]:
    """Pieces of a file that end at the end of a line. One that is too long is cut, at more than its limit. `begins`:
    whether the first is the begin of the file."""
    is_first = begins
    while block := stream.read(_BLOCK_BYTES):
        if is_first:
            block = block.removeprefix(_BOM)
            is_first = False
        if not block.endswith(b"\n"):
            block += (rest := stream.readline(MAX_LINE_BYTES + 2))
            yield block
            while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
                rest = stream.readline(MAX_LINE_BYTES + 2)
        else:
            yield block


def _one_file(source: Path, pattern: str | None) -> Corpus:
    if pattern is not None:
        raise UsageError(f"a pattern ({pattern}) needs a directory as input; {source} is a file")
    try:
        with source.open("rb") as stream:
            status = os.fstat(stream.fileno())
    except OSError as error:
        raise UsageError(f"cannot read input {source}: {error.strerror}") from error
    name, location = _unicode(source.name), str(source.absolute())
    return Corpus(str(source), (InputFile(name, location, status.st_size, mtime_ns=status.st_mtime_ns),))


def _walk(source: Path, pattern: str | None, excluded: set[str], left_out: list[str]) -> Iterator[InputFile]:
    """`left_out`: gets the directories that Squall wrote."""
    unreadable: list[OSError] = []
    root = str(source.absolute())
    for folder, folders, names in os.walk(root, onerror=unreadable.append):
        if folder != root and (kind := _kind_of(os.path.basename(folder), {*folders, *names})):
            left_out.append(f"{_unicode(os.path.relpath(folder, root))} ({kind})")
            folders.clear()
            continue
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


def _kind_of(name: str, entries: Collection[str]) -> str:
    """What a directory is, if it is one of Squall's; else empty. `entries`: the names in it."""
    if _STAGING.fullmatch(name):
        return _FEED
    return next((kind for kind, marks in _MARKS.items() if marks.issubset(entries)), "")


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
    if not stat.S_ISREG(status.st_mode):
        return None
    return InputFile(name, location, status.st_size, mtime_ns=status.st_mtime_ns)


def _probed(file: InputFile) -> InputFile | None:
    """The file, with a problem if it cannot be read; None if it looks binary."""
    try:
        return None if b"\0" in first_bytes(file, BINARY_PROBE_BYTES) else file
    except OSError as error:
        return replace(file, problem=f"cannot be read: {error.strerror or error}")


def without_open_line(file: InputFile) -> InputFile | None:
    """The file up to the end of its last line that has one; None if there is no such line. For files that grow."""
    if file.problem or is_compressed(file.location):
        return file
    try:
        with open(file.location, "rb") as stream:
            end = file.size_bytes
            while end > file.start_bytes:
                begin = max(file.start_bytes, end - BINARY_PROBE_BYTES)
                stream.seek(begin)
                if found := stream.read(end - begin).rfind(b"\n") + 1:
                    return replace(file, size_bytes=begin + found)
                end = begin
    except OSError as error:
        return replace(file, problem=f"cannot be read: {error.strerror}")
    return None


def _unicode(name: str) -> str:
    """A file name that UTF-8 can carry: bytes that are not UTF-8 are shown as \\xNN."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
