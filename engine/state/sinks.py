"""Sinks that write each tuple once: a base with one method for users' own, files, and SQL databases.

What is written is first committed in the task's store, with the identities of its tuples, and then outside. If the
worker dies in between, its successor writes the same rows under the same number again, which changes nothing that is
there already: `commit` is to see to that. A tuple is acked when it is outside.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from squall.engine.api.component import Component
from squall.engine.api.tuple import Tuple
from squall.engine.errors import Unavailable, UsageError
from squall.engine.foreign.files import sync_directories
from squall.engine.foreign.text import repr_of, text_of_error

if TYPE_CHECKING:
    from squall.engine.api.context import TopologyContext


class ExactSink(Component):
    """A bolt that writes each tuple once, outside. Subclasses define `commit`."""

    blocking: bool = False
    """Must be False."""
    durability: str = "process"
    """As of `StatefulBolt`."""
    commit_secs: float = 0.0
    """Above 0: rows are gathered for so long at most, and the sink has a thread of its own."""
    commit_rows: int = 100_000
    """Rows that are gathered at most."""
    commit_bytes: int = 64 << 20
    """The same for their bytes, as estimated in memory."""
    needed_fields: Sequence[str] = ()
    """As of `Bolt`."""
    store_id: str
    """Names the state of this task: another one, such as after `--fresh`, has another."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once in the worker, before anything else."""

    def refused(self, rows: Sequence[Tuple]) -> Mapping[int, str]:
        """Return why some of these rows cannot be written, by their places: they fail, each alone."""
        return {}

    def position(self) -> Any:
        """Return where the next `commit` will write, which is given to it, also after a death; None if that does not
        matter."""

    def commit(self, number: int, rows: Sequence[Tuple], position: Any) -> None:
        """Write these rows. It may be called once more, in another life, with the last number, rows and position: then
        it must leave what one call leaves. Numbers ascend. An exception fails the rows, and they are written before
        any others."""
        raise TypeError(f"{type(self).__name__} must define commit")

    def cleanup(self) -> None:
        """Called at an orderly end, not when the worker is killed."""


class FileSink(ExactSink):
    """Writes tuples as lines of JSON to files in a directory, one for each task: `FileSink("out")`. A topology that
    begins anew writes others."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """UsageError if `path` is no directory, or cannot be made."""
        if not os.fspath(path):
            raise UsageError("FileSink has an empty path; allowed: a directory")
        self._path = Path(path).absolute()
        there = next(each for each in (self._path, *self._path.parents) if each.exists())
        if not there.is_dir():
            raise UsageError(f"FileSink cannot write to {self._path}: {there} is no directory")

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        path = self._path / f"part-{context.task_index:05d}-{self.store_id}.jsonl"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if self.durability == "full":
            sync_directories(self._path)

    def refused(self, rows: Sequence[Tuple]) -> Mapping[int, str]:
        mistakes = {}
        for place, tup in enumerate(rows):
            try:
                _JSON.encode(tup.values)
            except Exception as error:  # half of a character, a number of 4,301 digits, or a value's own code
                mistakes[place] = f"FileSink cannot write {repr_of(tup.values)}: {text_of_error(error)}"
        return mistakes

    def position(self) -> int:
        return os.fstat(self._fd).st_size

    def commit(self, number: int, rows: Sequence[Tuple], position: int) -> None:
        os.ftruncate(self._fd, position)
        data = _JSON.encode_lines([dict(zip(tup.fields, tup.values, strict=True)) for tup in rows])
        while data:
            # In place: an earlier life that is not dead yet may be writing the same.
            position += (written := os.pwrite(self._fd, data, position))
            data = data[written:]
        if self.durability == "full":
            os.fdatasync(self._fd)

    def cleanup(self) -> None:
        os.close(self._fd)


def is_of_outside(error: BaseException) -> bool:
    """Return True for what DB-API modules raise when a database cannot be reached."""
    return _is_one_of(error, {"OperationalError", "InterfaceError", "OSError"})


def _is_one_of(error: BaseException, names: set[str]) -> bool:
    """By name, because each DB-API module has classes of its own."""
    return not names.isdisjoint(one.__name__ for one in type(error).__mro__)


_JSON = msgspec.json.Encoder(enc_hook=str)
_OF_VALUE = {"IntegrityError", "DataError", "OverflowError", "TypeError", "ValueError"}
"""What DB-API modules raise when a database cannot take a value."""
_STYLES = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class SqlSink(ExactSink):
    """Runs a statement for each tuple, with its values: `SqlSink(connect, "INSERT INTO counts VALUES (?, ?)")`.

    The number of the last commit is in the same transaction, in a table `squall_commits` that it makes."""

    def __init__(self, connect: Callable[[], Any], statement: str) -> None:
        """`connect()` returns a connection of a DB-API module whose parameters are written ? or %s, such as sqlite3 or
        psycopg."""
        if not callable(connect):
            raise UsageError(f"SqlSink has connect {repr_of(connect)}; allowed: a function that returns a connection")
        self._connect, self._statement = connect, statement
        self._connection: Any = None
        self._is_ready = False
        """True if the rows are written, and not committed."""

    def refused(self, rows: Sequence[Tuple]) -> Mapping[int, str]:
        """Run the statements, in a transaction that `commit` ends; return why single rows are refused."""
        try:
            cursor = self._begun()
            try:
                cursor.executemany(self._statement, [tup.values for tup in rows])
                found: Mapping[int, str] = {}
            except Exception as error:
                if self._is_away(error):
                    raise
                found = self._run_each(rows)
                if len(found) == len(rows) and not _is_one_of(error, _OF_VALUE):
                    raise  # not a row is wrong, but the statement or the table
            self._is_ready = True
        except BaseException as error:
            self._failed(error)
        return found

    def commit(self, number: int, rows: Sequence[Tuple], position: Any) -> None:
        try:
            is_ready, self._is_ready = self._is_ready, False
            cursor = self._connection.cursor() if is_ready else self._begun()
            # It waits for what the database is doing still for an earlier life.
            change = "UPDATE squall_commits SET number = {0} WHERE task = {0} AND number < {0}"
            cursor.execute(change.format(self._mark), (number, self.store_id, number))
            if cursor.rowcount and not is_ready:
                cursor.executemany(self._statement, [tup.values for tup in rows])
            self._connection.commit()
        except BaseException as error:
            self._failed(error)

    def _begun(self) -> Any:
        """A cursor in a new transaction."""
        self._is_ready = False
        connection = self._connection or self._opened()
        connection.rollback()
        return connection.cursor()

    def _run_each(self, rows: Sequence[Tuple]) -> dict[int, str]:
        """Run the statement for each row; return why some are refused."""
        found, cursor = {}, self._begun()
        # SQLite's savepoints begin no transaction.
        cursor.execute(f"UPDATE squall_commits SET number = number WHERE task = {self._mark}", (self.store_id,))
        for place, tup in enumerate(rows):
            cursor.execute("SAVEPOINT squall_row")
            try:
                cursor.execute(self._statement, tup.values)
            except Exception as error:
                if self._is_away(error):
                    raise
                cursor.execute("ROLLBACK TO SAVEPOINT squall_row")
                found[place] = f"SqlSink cannot write {repr_of(tup.values)}: {text_of_error(error)}"
            cursor.execute("RELEASE SAVEPOINT squall_row")
        return found

    def _is_away(self, error: BaseException) -> bool:
        return is_of_outside(error) and bool(getattr(self._connection, "closed", self._connection is None))

    def _failed(self, error: BaseException) -> NoReturn:
        if self._is_away(error):
            self.cleanup()
            raise Unavailable(f"SqlSink does not reach its database: {text_of_error(error)}") from error
        if self._connection is not None:
            # A cursor that the error refers to would keep SQLite's lock beyond the end of the connection.
            self._connection.rollback()
            self.cleanup()
        raise error

    def _opened(self) -> Any:
        self._connection = connection = self._connect()
        style = getattr(sys.modules[type(connection).__module__.partition(".")[0]], "paramstyle", "")
        if style not in _STYLES:
            raise UsageError(f"SqlSink got a connection with paramstyle {style!r}; allowed: {', '.join(_STYLES)}")
        by_itself = isinstance(connection, sqlite3.Connection) and connection.isolation_level is None
        if by_itself or getattr(connection, "autocommit", False) is True:
            raise UsageError("SqlSink got a connection with autocommit; allowed: one without, to write rows together")
        self._mark = mark = _STYLES[style]
        try:
            self._begin(connection.cursor(), mark)
        except Exception:
            # Two tasks that make one table at once: in PostgreSQL, the second one gets an error.
            connection.rollback()
            self._begin(connection.cursor(), mark)
        connection.commit()
        return connection

    def _begin(self, cursor: Any, mark: str) -> None:
        """Have the table, and a row of this task in it."""
        cursor.execute(
            "CREATE TABLE IF NOT EXISTS squall_commits (task VARCHAR(64) PRIMARY KEY, number BIGINT NOT NULL)"
        )
        cursor.execute(f"SELECT number FROM squall_commits WHERE task = {mark}", (self.store_id,))
        if cursor.fetchone() is None:
            cursor.execute(f"INSERT INTO squall_commits (task, number) VALUES ({mark}, 0)", (self.store_id,))

    def cleanup(self) -> None:
        connection, self._connection = self._connection, None
        self._is_ready = False
        if connection is not None:
            connection.close()
