"""A directory of numbered Parquet files, written by many tasks, read by anyone at any time.

::

    DIR/_common_metadata          the schema of all files, made once, and the key of their rows
    DIR/part-0000000000.parquet   complete from the instant at which it has this name, and never changed
    DIR/part-0000000001.parquet   numbers have no gap: a file's number is its place in the order of commits
    DIR/_tmp-4f1c...              being written, locked by its writer; not locked: its writer is dead

Guarantees, even if any writer is killed at any point: a number is given once, as a hard link is made only if there is
no such name; a reader never sees a part of a file; what a dead writer left is removed by the next that begins. What was
published survives a power loss as far as the disk keeps its word (fsync). Relies on a file system that knows hard links
and flock, and on files being removed from the lowest number up, never the highest. Imports pyarrow when called.
Thread: one for each object.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from squall.engine.errors import UsageError
from squall.engine.foreign.text import text_of_error

FORMAT = 1
SCHEMA_NAME = "_common_metadata"
_ABOUT = b"squall.sink"
"""Key of our entry in the metadata of a schema."""
_PART = re.compile(r"part-(\d{10})\.parquet")
_DRAFT = re.compile(r"_tmp-[0-9a-f]{16}")


class About(NamedTuple):
    """What is fixed for all files of a directory."""

    path: Path
    schema: Any
    """Arrow's, without our metadata."""
    key: tuple[str, ...]


def check_directory(path: Path) -> None:
    """UsageError if a sink cannot write there, or another's files lie there."""
    # A link to nothing is there, too: no directory can be made in its place.
    there = next(some for some in (path, *path.parents) if os.path.lexists(some))
    if not there.is_dir():
        raise UsageError(f"ParquetSink cannot write to {path}: {there} is not a directory")
    names = sorted(os.listdir(path)) if there == path else []
    for name in names:
        if name.endswith(".parquet") and not (SCHEMA_NAME in names and _PART.fullmatch(name)):
            raise UsageError(f"{path} holds {name!r}, which is no file of a ParquetSink; choose another directory")


def load_about(path: Path) -> About | None:
    """What is fixed for a directory; None if nothing is yet. UsageError if it is not a sink's."""
    if not (path / SCHEMA_NAME).exists():
        return None
    import pyarrow
    from pyarrow import parquet

    try:
        schema = parquet.read_schema(path / SCHEMA_NAME)
        about = json.loads((schema.metadata or {})[_ABOUT])
        if about["format"] != FORMAT:
            raise UsageError(f"{path} has format {about['format']!r}; this version reads format {FORMAT}")
        return About(path, schema.remove_metadata(), tuple(map(str, about["key"])))
    except (pyarrow.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path / SCHEMA_NAME} is not of a ParquetSink: {text_of_error(error)}") from error


class SinkDirectory:
    """The directory as one writer sees it."""

    def __init__(self, path: Path) -> None:
        """Make it if need be, and clear what dead writers left. OSError if that fails, UsageError if it is not ours."""
        check_directory(path)
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        names = os.listdir(path)
        self._next = max((int(part[1]) for part in map(_PART.fullmatch, names) if part), default=-1) + 1
        for draft in filter(_DRAFT.fullmatch, names):
            _remove_if_dead(path / draft)

    def fix(self, schema: Any, key: Sequence[str]) -> About:
        """Fix schema and key for all files, unless that was done. What is fixed now."""
        from pyarrow import parquet

        if (about := load_about(self.path)) is None:
            entry = json.dumps({"format": FORMAT, "key": list(key)}).encode()
            with self._draft() as draft:
                parquet.write_metadata(schema.with_metadata({_ABOUT: entry}), draft)
                _sync(draft)
                with contextlib.suppress(FileExistsError):  # another task was first
                    os.link(draft, self.path / SCHEMA_NAME)
            _sync(self.path)
            about = load_about(self.path)
        if about is None:
            raise UsageError(f"{self.path / SCHEMA_NAME} was removed while a ParquetSink wrote")
        return about

    def publish(self, table: Any) -> None:
        """Write a table under the next number. Returns when it is on disk; after an error, nothing has been published,
        or the caller cannot know."""
        from pyarrow import parquet

        with self._draft() as draft:
            parquet.write_table(table, draft, write_page_checksum=True)
            _sync(draft)
            while True:
                try:
                    os.link(draft, self.path / f"part-{self._next:010d}.parquet")
                    break
                except FileExistsError:
                    self._next += 1  # another task took the number
        _sync(self.path)

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        """Make a file to write to, which readers do not look at. A writer that begins just now may take it for a dead
        one's: then it has no name any more, and the link to it fails."""
        path = self.path / f"_tmp-{secrets.token_hex(8)}"
        lock = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield path
        finally:
            path.unlink(missing_ok=True)
            os.close(lock)


def _remove_if_dead(draft: Path) -> None:
    """Remove a draft, unless its writer has locked it."""
    with contextlib.suppress(FileNotFoundError, BlockingIOError), draft.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
