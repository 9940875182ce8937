"""ParquetSink: writes tuples to Parquet files, and acks them when their file is on disk.

Guarantees
    * A tuple is acked after its file is complete, under its final name, and synced; so nothing is lost when a worker or
      everything dies. A reader sees whole files only.
    * At least once: a tuple whose worker died between its file and its ack comes again. With a `key`, each row has a
      `_message_id` that is the same each time, by which readers drop what came twice. A bolt knows no such id by
      itself: the engine gives each attempt of a message a new root.
    * A value that does not fit its column fails its own tuple, with an error that names field, value and type.
    * No tuple is held longer than `commit_secs`, a tick (a twentieth of that) and the time of writing; no more than
      `commit_rows` rows, nor more than `commit_bytes` and one tuple.
    * While files cannot be written, nothing is acked: what is held fails, with an error, and its sources emit it again.

Relies on `pipeline.sink.directory` for the files, `pipeline.sink.table` for their content. Imports pyarrow on
use. Thread: one of its own (`blocking`), as a sync takes as long as the disk likes.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.engine.api.component import Bolt
from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.sizes import row_bytes
from squall.engine.foreign.text import line_of_error
from squall.engine.plural import plural
from squall.pipeline.sink.directory import SinkDirectory, check_directory, load_about
from squall.pipeline.sink.table import Misfits, TableMaker

if TYPE_CHECKING:
    from squall.engine.api.collectors import BoltCollector
    from squall.engine.api.context import TopologyContext
    from squall.engine.api.tuple import Tuple

TICKS_PER_COMMIT = 20
LEAST_SECS = 0.001
COMMIT_ROWS = 100_000
COMMIT_BYTES = 64 << 20
MISFITS_SHOWN = 3
"""Most misfits of a file that are reported one by one."""


class ParquetSink(Bolt):
    """A bolt that writes its tuples to Parquet files in a directory, `ParquetSink("build/out")`, and acks them when
    they are on disk. A row may be there twice after a death; `key` lets readers drop the second."""

    blocking = True

    def __init__(
        self, path: str | os.PathLike[str], *, fields: Sequence[str] = (), schema: Any = None,
        key: str | Sequence[str] = (), commit_rows: int = COMMIT_ROWS, commit_bytes: int = COMMIT_BYTES,
        commit_secs: float = 1.0,
    ) -> None:
        """`fields` names the fields to write, in this order; by default those of `schema`, or else all of the first
        tuple except `origin`. `schema` is a pyarrow.Schema, or a dict from field names to pyarrow types or their names;
        without it, types are inferred from the first rows, and fixed. `key` names the fields that tell which row of
        which message a tuple is; they become the column `_message_id`.

        A file is written at `commit_rows` rows, at `commit_bytes` bytes in memory, or `commit_secs` seconds after its
        first tuple, whichever comes first.

        UsageError if the directory cannot be a sink's, or its files have other columns or another key."""
        self._path = Path(path).absolute()
        if commit_rows < 1 or commit_bytes < 1 or not commit_secs >= LEAST_SECS:
            raise UsageError(
                f"ParquetSink has commit_rows {commit_rows}, commit_bytes {commit_bytes}, commit_secs {commit_secs}; "
                f"give 1, 1 and {LEAST_SECS} or more"
            )
        self._limits = commit_rows, commit_bytes, round(commit_secs * NS_PER_SEC)
        self.component_config = {"tick_tuple_freq_secs": max(commit_secs / TICKS_PER_COMMIT, LEAST_SECS)}
        # What is wrong with the rest is said before anything starts, too.
        if importlib.util.find_spec("pyarrow") is None:
            raise UsageError('ParquetSink needs pyarrow: pip install "squall[spark]"')
        self._tables = TableMaker(fields, schema, key)
        check_directory(self._path)
        self._adopt()

    @property
    def needed_fields(self) -> Sequence[str]:  # type: ignore[override]
        """Names of the fields to write and of the key's, as far as they are known before the first tuple."""
        return tuple(dict.fromkeys((*self._tables.key, *self._tables.fields)))

    def _adopt(self) -> bool:
        """Take what is fixed for the directory; whether anything is."""
        about = load_about(self._path)
        if about is not None:
            self._tables.adopt(about)
        return about is not None

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        commit_secs, timeout_secs = self._limits[2] / NS_PER_SEC, conf["message_timeout_secs"]
        if commit_secs > timeout_secs / 2:
            raise UsageError(
                f"ParquetSink has commit_secs {commit_secs:g}; allowed: up to {timeout_secs / 2:g}, half of "
                "message_timeout_secs, after which a message that is held comes again"
            )
        self._collector = collector
        self._now_ns = context.now_ns
        self._held: list[Tuple] = []
        self._pace = Pace(*self._limits)
        self._shape: tuple[str, ...] | None = None
        """The fields of the last tuple, which had all that are needed."""
        try:
            self._directory = SinkDirectory(self._path)
            self._adopt()
        except OSError as error:
            raise ClusterError(f"ParquetSink cannot write to {self._path}: {line_of_error(error)}") from error

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            if self._pace.tick(self._now_ns()):
                self._commit()
            self._collector.ack(tup)
            return
        if tup.fields is not self._shape:
            if mistake := self._tables.mistake(tup):
                self._refuse([tup], [f"ParquetSink {self._path}: {mistake}"])
                return
            self._shape = tup.fields
        self._held.append(tup)
        if self._pace.took(row_bytes(tup.values), self._now_ns()):
            self._commit()

    def cleanup(self) -> None:
        """Write what is held, because tuples without a tree are not emitted again."""
        self._commit()

    def _commit(self) -> None:
        """Publish a file of the tuples that are held, and ack them."""
        held, self._held = self._held, []
        self._pace.wrote()
        if not held:
            return
        try:
            misfits = self._write(held)
        except OSError as error:
            what = f"{plural(len(held), 'tuple')} cannot be written to {self._path}"
            self._refuse(held, [f"{what}, and will be emitted again: {line_of_error(error)}"])
            return
        for row, tup in enumerate(held):
            if row not in misfits:
                self._collector.ack(tup)
        if misfits:
            shown = [f"ParquetSink {self._path}: {why}" for why in list(misfits.values())[:MISFITS_SHOWN]]
            if len(misfits) > MISFITS_SHOWN:
                shown[-1] += f"; {plural(len(misfits) - MISFITS_SHOWN, 'more tuple')} of this file did not fit either"
            self._refuse((held[row] for row in misfits), shown)

    def _write(self, held: Sequence[Tuple]) -> Misfits:
        tables = self._tables
        if tables.schema is None and not self._adopt() and (unknown := tables.infer(held)):
            return unknown
        # Each time, because the directory may have been emptied; another task may have been the first.
        tables.adopt(self._directory.fix(tables.schema, tables.key))
        table, misfits = tables.make(held)
        if table.num_rows:
            self._directory.publish(table)
        return misfits

    def _refuse(self, tuples: Iterable[Tuple], errors: Iterable[str]) -> None:
        for error in errors:
            self._collector.report_error(ClusterError(error))
        for tup in tuples:
            self._collector.fail(tup)


class Pace:
    """Decides when the rows that a task holds become a file.

    A file is due when it has enough rows or bytes, or its first row has been held long enough. Sources often wait for
    acks: with `max_spout_pending` rows held, nothing more comes, and each file would take its full time. So when rows
    stop coming once again after as many as the last time, that is taken for such a stop, and the file is due at the
    next tick. No row is held longer than `most_ns` and a tick.
    """

    def __init__(self, most_rows: int, most_bytes: int, most_ns: int) -> None:
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._most_ns = most_ns
        self.rows = 0
        self._bytes = 0
        self._first_ns = 0
        self._rows_at_tick = 0
        self._stops_at = 0
        """Rows after which none came any more, the last time."""

    def took(self, size_bytes: int, now_ns: int) -> bool:
        """Note one more row; whether the file is due."""
        if not self.rows:
            self._first_ns = now_ns
        self.rows += 1
        self._bytes += size_bytes
        return self.rows >= self._most_rows or self._bytes >= self._most_bytes or self._is_old(now_ns)

    def tick(self, now_ns: int) -> bool:
        """Note that time has passed; whether the file is due."""
        stopped = self.rows == self._rows_at_tick
        self._rows_at_tick = self.rows
        if not self.rows:
            return False
        if self._is_old(now_ns):
            self._stops_at = self.rows
            return True
        return stopped and 0 < self._stops_at <= self.rows

    def _is_old(self, now_ns: int) -> bool:
        return now_ns - self._first_ns >= self._most_ns

    def wrote(self) -> None:
        """Note that the rows are held no longer."""
        self.rows = self._bytes = self._rows_at_tick = 0
