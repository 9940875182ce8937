"""ParquetSink: writes each tuple once to Parquet files, and acks it when its file is on disk.

Guarantees
    * A tuple is acked after its file is complete, under its final name, and synced; so nothing is lost when a worker or
      everything dies. A reader sees whole files only.
    * Each row is in one file: a file that was begun in an earlier life gets the same name (`engine.state.sink_task`).
    * A value that does not fit its column fails its own tuple, with an error that names field, value and type.
    * While files cannot be written, nothing is acked: what is held fails, with an error, and its sources emit it again.

::

    DIR/_common_metadata                             the schema of all files, made once
    DIR/part-1f0c58f0a4e2d7b3-0000000001.parquet     complete from the instant at which it has this name, and never
                                                     changed: of the state of a task, and its number there
    DIR/_tmp-part-1f0c58f0a4e2d7b3-0000000002        being written, or its writer is dead: the next one writes it

Even if any writer is killed at any point, a reader never sees a part of a file, and a file that is written once more is
the same one. What was published survives a power loss as far as the disk keeps its word (fsync).

Relies on a file system that knows hard links, and on `pipeline.sink_table` for the content of files. Imports pyarrow on
use. Thread: one of its own, as it gathers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.engine.errors import ClusterError, FailedTuple, UsageError
from squall.engine.foreign.files import sync, sync_directories
from squall.engine.foreign.text import line_of_error, plural, text_of_error
from squall.engine.state.sinks import ExactSink
from squall.pipeline.sink_table import Misfits, TableMaker

if TYPE_CHECKING:
    from squall.engine.api.context import TopologyContext
    from squall.engine.api.tuple import Tuple

LEAST_SECS = 0.001
FORMAT = 2
SCHEMA_NAME = "_common_metadata"
_ABOUT = b"squall.sink"
"""Key of our entry in the metadata of a schema."""
_PART = re.compile(r"part-[0-9a-f]{16}-\d{10}\.parquet")


class ParquetSink(ExactSink):
    """A bolt that writes its tuples to Parquet files in a directory, `ParquetSink("build/out")`, each once, and acks
    them when they are on disk."""

    durability = "full"

    def __init__(
        self, path: str | os.PathLike[str], *, fields: Sequence[str] = (), schema: Any = None,
        commit_rows: int = ExactSink.commit_rows, commit_bytes: int = ExactSink.commit_bytes, commit_secs: float = 1.0,
    ) -> None:
        """`fields` names the fields to write, in this order; by default those of `schema`, or else all of the first
        tuple. `schema` is a pyarrow.Schema, or a dict from field names to pyarrow types or their names;
        without it, types are inferred from the first rows, and fixed.

        A file is written at `commit_rows` rows, at `commit_bytes` bytes in memory, or `commit_secs` seconds after its
        first tuple, whichever comes first.

        UsageError if the directory cannot be a sink's, or its files have other columns."""
        self._path = Path(path).absolute()
        if not commit_secs >= LEAST_SECS:
            raise UsageError(f"ParquetSink has commit_secs {commit_secs}; allowed: {LEAST_SECS} or more")
        self.commit_rows, self.commit_bytes, self.commit_secs = commit_rows, commit_bytes, commit_secs
        # What is wrong with the rest is said before anything starts, too.
        if importlib.util.find_spec("pyarrow") is None:
            raise UsageError('ParquetSink needs pyarrow: pip install "squall[spark]"')
        self._tables = TableMaker(fields, schema)
        check_directory(self._path)
        self._adopt()

    @property
    def needed_fields(self) -> Sequence[str]:  # type: ignore[override]
        """Names of the fields to write, as far as they are known before the first tuple."""
        return self._tables.fields

    def _adopt(self) -> bool:
        """Take what is fixed for the directory; whether anything is."""
        schema = load_schema(self._path)
        if schema is not None:
            self._tables.adopt(schema, self._path)
        return schema is not None

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._made: Any = None
        """The table of the rows that were looked at last, until it is written."""
        try:
            self._directory = SinkDirectory(self._path)
            self._adopt()
        except OSError as error:
            raise ClusterError(f"ParquetSink cannot write to {self._path}: {line_of_error(error)}") from error

    def refused(self, rows: Sequence[Tuple]) -> Mapping[int, str]:
        tables, self._made = self._tables, None
        misfits = tables.mistakes(rows)
        places = [place for place in range(len(rows)) if place not in misfits]
        good = [rows[place] for place in places]
        if good:
            wrong = {} if tables.schema is not None or self._adopt() else tables.infer(good)
            if not wrong:
                self._made, wrong = self._make(good)
            misfits |= {places[place]: why for place, why in wrong.items()}
        return {place: f"ParquetSink {self._path}: {misfits[place]}" for place in sorted(misfits)}

    def _make(self, rows: Sequence[Tuple]) -> tuple[Any, Misfits]:
        # Each time, because the directory may have been emptied; another task may have been the first.
        with self._telling(len(rows)):
            self._tables.adopt(self._directory.fix(self._tables.schema), self._path)
        return self._tables.make(rows)

    def commit(self, number: int, rows: Sequence[Tuple], position: Any) -> None:
        table, self._made = self._made, None
        if table is None:
            table, misfits = self._make(rows)
            for why in misfits.values():
                raise ClusterError(f"ParquetSink {self._path} has other columns than it had before a death: {why}")
        with self._telling(len(rows)):
            self._directory.publish(table, f"part-{self.store_id}-{number:010d}.parquet")

    @contextlib.contextmanager
    def _telling(self, rows: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"{plural(rows, 'tuple')} cannot be written to {self._path}, and will be emitted again"
            raise FailedTuple(f"{what}: {line_of_error(error)}") from error


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

    @contextlib.contextmanager
    def _draft(self, name: str) -> Iterator[Path]:
        """A file to write to, which readers do not look at."""
        path = self.path / f"_tmp-{name}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)
