"""Finds the files of an input, and deals them out to tasks.

Guarantees each regular file once, in order of name, with a problem if it cannot be read. A feed is not an input. Of an
opened file no more is read than was there when it was found; its checksum covers all of that, also the part that an
earlier run has read. A file raises an OSError if it is shorter by now, was changed before its new part, or is a damaged
compressed file. Memory is bounded whatever a compressed file holds. Imports pyarrow for those; relies on nothing of
Spark.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import heapq
import io
import os
import re
import stat
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from squall.engine.errors import UsageError
from squall.engine.foreign.text import text_of_error
from squall.pipeline.feed.manifest import MANIFEST_NAME, ROWS_NAME

#: Bytes of a text file that are read, decompressed if need be, to see whether it can be.
PROBE_BYTES = 8 << 10
#: Bytes that are read at a time where they are only counted in.
PIECE_BYTES = 1 << 20
#: By the ending of a name.
_CODECS = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}
_SKIPPED_DIRECTORIES = frozenset({"__pycache__", "site-packages"})
#: What a run of prepare holds beside a feed.
_STAGING = re.compile(r".+\.tmp-prepare-\d+")


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
    """The content of an input: the files to read, in order of name."""

    root: str
    files: tuple[InputFile, ...]
    left_out: tuple[str, ...] = ()
    """Feeds."""


def default_input() -> tuple[Path, str]:
    """The default input and pattern: the source of this interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib")), "*.py"


def find_files(source: Path, pattern: str | None = None, *, is_text: bool = True) -> Corpus:
    """Find every regular file of `source`, a directory or one file. Reads the first bytes of each.

    In a directory, hidden files and folders, __pycache__, site-packages and feeds are left out; unless files are text,
    also what begins with an underscore, as Spark does. `pattern` is a shell pattern on the file name, or on the
    relative path if it has a slash. UsageError if `source` is a feed itself.
    """
    try:
        mode = source.stat().st_mode
        entries = os.listdir(source) if stat.S_ISDIR(mode) else ()
    except OSError as error:
        raise UsageError(f"cannot read input {source}: {error.strerror}") from error
    if stat.S_ISREG(mode):
        if pattern is not None:
            raise UsageError(f"a pattern ({pattern}) needs a directory as input; {source} is a file")
        file = _look_at(str(source.absolute()), _unicode(source.name))
        return Corpus(str(source), (file,) if file else ())
    if not stat.S_ISDIR(mode):
        raise UsageError(f"input {source} is neither a directory nor a regular file")
    if MANIFEST_NAME in entries:
        raise UsageError(
            f"input {source} is a feed itself, which FeedSpout reads; to prepare its rows, give {source / ROWS_NAME} "
            "with --format parquet"
        )
    files: list[InputFile] = []
    left_out: list[str] = []
    for file in _walk(str(source.absolute()), pattern, left_out):
        if is_text:
            files.append(_probed(file))
        elif not any(name.startswith("_") for name in file.name.split("/")):
            files.append(file)
    files.sort(key=lambda file: file.name)
    return Corpus(str(source), tuple(files), tuple(sorted(left_out)))


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


def _walk(root: str, pattern: str | None, left_out: list[str]) -> Iterator[InputFile]:
    """`left_out`: gets the feeds."""
    unreadable: list[OSError] = []
    for folder, folders, names in os.walk(root, onerror=unreadable.append):
        if folder != root and (MANIFEST_NAME in names or _STAGING.fullmatch(os.path.basename(folder))):
            left_out.append(_unicode(os.path.relpath(folder, root)))
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED_DIRECTORIES]
        for name in names:
            location = os.path.join(folder, name)
            relative = os.path.relpath(location, root)
            matched = relative if pattern is not None and "/" in pattern else name
            if not name.startswith(".") and (pattern is None or fnmatch.fnmatchcase(matched, pattern)):
                file = _look_at(location, _unicode(relative))
                if file is not None:
                    yield file
    for error in unreadable:
        location = str(error.filename)
        name = _unicode(os.path.relpath(location, root))
        yield InputFile(name, location, problem=f"directory cannot be read: {error.strerror}")


def _look_at(location: str, name: str) -> InputFile | None:
    """The file, or None for a socket, pipe or device: those hold no lines."""
    try:
        status = os.stat(location)
    except OSError as error:
        return InputFile(name, location, problem=f"cannot be read: {error.strerror}")
    if not stat.S_ISREG(status.st_mode):
        return None
    return InputFile(name, location, status.st_size, mtime_ns=status.st_mtime_ns)


def _probed(file: InputFile) -> InputFile:
    """The file, with a problem if it cannot be read."""
    if file.problem:
        return file
    try:
        with opened(file) as (stream, _):
            stream.read(PROBE_BYTES)
    except OSError as error:
        return replace(file, problem=f"cannot be read: {error.strerror or error}")
    return file


def _unicode(name: str) -> str:
    """A file name that UTF-8 can carry: bytes that are not UTF-8 are shown as \\xNN."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def is_compressed(location: str) -> bool:
    return location.lower().rpartition(".")[2] in _CODECS


class Digested(io.RawIOBase):
    """The bytes of a file as it was found, and their checksum as far as they are read."""

    def __init__(self, stream: BinaryIO, size_bytes: int) -> None:
        self._stream = stream
        self._left = size_bytes
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._noted(self._stream.read(self._left if size < 0 else min(size, self._left)))

    def readline(self, size: int | None = -1) -> bytes:
        return self._noted(self._stream.readline(self._left if size is None or size < 0 else min(size, self._left)))

    def _noted(self, data: bytes) -> bytes:
        self._left -= len(data)
        self._digest.update(data)
        return data

    def skip(self, size_bytes: int, sha256: str) -> None:
        """Pass over what was read before. OSError if it is not there any more."""
        while size_bytes and (data := self.read(min(size_bytes, PIECE_BYTES))):
            size_bytes -= len(data)
        if size_bytes or self.sha256 != sha256:
            raise OSError(errno.ESTALE, "changed before its new lines")

    def check_end(self) -> None:
        """OSError if the file ended before it should."""
        if self._left:
            raise OSError(errno.ESTALE, f"{self._left} bytes fewer than when it was found")


@contextmanager
def opened(file: InputFile) -> Iterator[tuple[BinaryIO, Digested]]:
    """Open the part of a file that is to be read; with it, what knows the checksum of the file."""
    with open(file.location, "rb") as stream:
        digested = Digested(stream, file.size_bytes)
        if file.start_bytes:
            digested.skip(file.start_bytes, file.start_sha256)
        if not is_compressed(file.location):
            yield cast("BinaryIO", digested), digested
            return
        try:
            with _expanded(digested, file.location) as expanded:
                yield cast("BinaryIO", expanded), digested
        except (ValueError, OSError) as error:
            raise OSError(errno.EIO, f"damaged as a compressed file: {text_of_error(error)}") from error


def _expanded(stream: Digested, location: str) -> Any:
    import pyarrow

    codec = _CODECS[location.lower().rpartition(".")[2]]
    return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(stream, mode="r"), codec))
