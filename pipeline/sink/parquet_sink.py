"""ParquetSink: writes each tuple once to Parquet files, and acks it when its file is on disk.

Guarantees
    * A tuple is acked after its file is complete, under its final name, and synced; so nothing is lost when a worker or
      everything dies. A reader sees whole files only.
    * Each row is in one file: a file that was begun in an earlier life gets the same name (`engine.state.sink_task`).
    * A value that does not fit its column fails its own tuple, with an error that names field, value and type.
    * While files cannot be written, nothing is acked: what is held fails, with an error, and its sources emit it again.

Relies on `pipeline.sink.directory` for the files, `pipeline.sink.table` for their content. Imports pyarrow on
use. Thread: one of its own, as it gathers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.engine.errors import ClusterError, FailedTuple, UsageError
from squall.engine.foreign.text import line_of_error, plural
from squall.engine.state.sinks import ExactSink
from squall.pipeline.sink.directory import SinkDirectory, check_directory, load_schema
from squall.pipeline.sink.table import Misfits, TableMaker

if TYPE_CHECKING:
    from squall.engine.api.context import TopologyContext
    from squall.engine.api.tuple import Tuple

LEAST_SECS = 0.001


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
