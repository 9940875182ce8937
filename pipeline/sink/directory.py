"""A directory of Parquet files, written by many tasks, read by anyone at any time.

::

    DIR/_common_metadata                             the schema of all files, made once
    DIR/part-1f0c58f0a4e2d7b3-0000000001.parquet     complete from the instant at which it has this name, and never
                                                     changed: of the state of a task, and its number there
    DIR/_tmp-part-1f0c58f0a4e2d7b3-0000000002        being written, or its writer is dead: the next one writes it

Guarantees, even if any writer is killed at any point: a reader never sees a part of a file, and a file that is written
once more is the same one. What was published survives a power loss as far as the disk keeps its word (fsync). Relies on
a file system that knows hard links. Imports pyarrow when called. Thread: one for each object.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from squall.engine.errors import UsageError
from squall.engine.foreign.disk import sync, sync_directories
from squall.engine.foreign.text import text_of_error

FORMAT = 2
SCHEMA_NAME = "_common_metadata"
_ABOUT = b"squall.sink"
"""Key of our entry in the metadata of a schema."""
_PART = re.compile(r"part-[0-9a-f]{16}-\d{10}\.parquet")


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


def load_schema(path: Path) -> Any:
    """What is fixed for a directory, Arrow's schema; None if nothing is yet. UsageError if it is not a sink's."""
    if not (path / SCHEMA_NAME).exists():
        return None
    import pyarrow
    from pyarrow import parquet

    try:
        schema = parquet.read_schema(path / SCHEMA_NAME)
        found = json.loads((schema.metadata or {})[_ABOUT])["format"]
    except (pyarrow.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path / SCHEMA_NAME} is not of a ParquetSink: {text_of_error(error)}") from error
    if found != FORMAT:
        raise UsageError(f"{path} has format {found!r}; this version writes format {FORMAT}: choose another directory")
    return schema.remove_metadata()


class SinkDirectory:
    """The directory as one writer sees it."""

    def __init__(self, path: Path) -> None:
        """Make it if need be. OSError if that fails, UsageError if it is not ours."""
        check_directory(path)
        path.mkdir(parents=True, exist_ok=True)
        sync_directories(path)
        self.path = path

    def fix(self, schema: Any) -> Any:
        """Fix the schema for all files, unless that was done. The one that is fixed now."""
        from pyarrow import parquet

        if (found := load_schema(self.path)) is None:
            entry = json.dumps({"format": FORMAT}).encode()
            with self._draft(secrets.token_hex(8)) as draft:
                parquet.write_metadata(schema.with_metadata({_ABOUT: entry}), draft)
                sync(draft)
                with contextlib.suppress(FileExistsError):  # another task was first
                    os.link(draft, self.path / SCHEMA_NAME)
            sync(self.path)
            found = load_schema(self.path)
        if found is None:
            raise UsageError(f"{self.path / SCHEMA_NAME} was removed while a ParquetSink wrote")
        return found

    def publish(self, table: Any, name: str) -> None:
        """Write a table under this name, unless it is there. Returns when it is on disk."""
        from pyarrow import parquet

        if not (self.path / name).exists():
            with self._draft(name.removesuffix(".parquet")) as draft:
                parquet.write_table(table, draft, write_page_checksum=True)
                sync(draft)
                draft.rename(self.path / name)
        sync(self.path)

    @contextmanager
    def _draft(self, name: str) -> Iterator[Path]:
        """A file to write to, which readers do not look at."""
        path = self.path / f"_tmp-{name}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)
