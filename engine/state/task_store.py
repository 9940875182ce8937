"""The store of one task: a SQLite file in its state directory.

Guarantees
    * A commit is whole or not at all, whatever is killed when. With `full` it survives power loss, too, and so does the
      store itself.
    * One process at a time has it open to write: a second one is refused, until the first one is dead.
    * What was committed is read back with its value and type. A store that lacks commits is refused: SQLite ends its
      write-ahead log where that is damaged, and takes an empty file for a new one. The number of the last commit is in
      `state.lock`, too.

A change is appended to a log with its commit, and gets to its place in the table of keys later, with others: there a
key takes microseconds, and most are changed again before (`engine.state.keyed`).

Text, and numbers of 64 bits, are stored as SQLite's own; other values as pickles, other keys by their forms
(`engine.state.keys`). Others may read while a task writes (`squall state`).

Relies on: SQLite's write-ahead log, and a file system that is not shared by machines. Thread: the task's.
"""

from __future__ import annotations

import contextlib
import fcntl
import marshal
import os
import pickle
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from squall.engine.errors import ClusterError, ComponentError, UnstorableError
from squall.engine.foreign.files import sync_directories
from squall.engine.foreign.text import message_of, plural, repr_of, text_of_error, type_name
from squall.engine.state.keys import (
    PLAIN,
    Spelling,
    has_own_form,
    have_own_forms,
    is_native,
    pack_form,
    pack_key,
    spelt,
)

STORE_FILE, LOCK_FILE = "state.db", "state.lock"
OUTSIDE = "outside"
"""In the store of a sink: its last rows."""
ACTIVITY = "activity"
"""In the store of a bolt with windows: what the spout of its results will be doing, BUSY while a window is open."""
_FORMAT = 2
# To overwrite what is removed takes seconds, if values are large.
_SCHEMA = """
    PRAGMA secure_delete=OFF;
    CREATE TABLE IF NOT EXISTS state (key PRIMARY KEY, value, at INTEGER) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS by_age ON state (at) WHERE at IS NOT NULL;
    CREATE TABLE IF NOT EXISTS log (number INTEGER PRIMARY KEY, changes BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS absorbed (number INTEGER PRIMARY KEY, content BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS results (
        place INTEGER PRIMARY KEY AUTOINCREMENT, origin TEXT NOT NULL, number INTEGER NOT NULL, content BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
"""
_SPELT = b"\0"
"""Begins the value of a key that has a spelling. A pickle does not."""
MISSING: Any = object()
"""In place of a value that is not there."""
GONE = None
"""In place of a packed value: there is none."""
LOG = "SELECT number, changes FROM log ORDER BY number"


def connected(path: str, synchronous: str, schema: str) -> sqlite3.Connection:
    """A file to write that has these tables, whatever thread uses it. Writers take turns; one opens a new file."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    try:
        db.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous}; {schema}")
    except BaseException:
        db.close()
        raise
    return db


def unpickled(packed: bytes, where: object) -> Any:
    """What the engine has pickled. ClusterError if it is damaged; `where`: the file."""
    try:
        return pickle.loads(packed)
    except BaseException as error:  # whatever damaged bytes lead to
        raise ClusterError(
            f"{where} cannot be read: {text_of_error(error)}; it is damaged, or holds values of other code: put back a "
            "copy, or the code"
        ) from error


def read_log(rows: Iterable[tuple[int, bytes]], where: object) -> Iterator[tuple[int, dict[Any, Any]]]:
    """The commits that LOG selects, with their changes, whose keys `read_key` reads."""
    return ((number, unpickled(changes, where)) for number, changes in rows)


def read_key(key: Any, where: object) -> Any:
    """A key of the log or the table. ClusterError if its class is not there, or it is damaged."""
    return unpickled(key.pickled, where) if type(key) is Spelling else key


def _pack_row(key: Any, value: Any) -> tuple[Any, Any]:
    """A key and its packed value as the table has them: the spelling of a key is beside its value."""
    if has_own_form(key):
        return pack_form(key), value
    spelling = spelt(key)
    return spelling.form, value if value is GONE else _SPELT + pickle.dumps((spelling.pickled, value), 5)


def unpack_row(key: Any, value: Any) -> tuple[Any, Any]:
    """Reverse `_pack_row`, but for spellings, which `read_key` reads."""
    if type(value) is bytes and value[:1] == _SPELT:
        pickled_key, value = pickle.loads(value[1:])
        return Spelling(key, pickled_key), value
    return marshal.loads(key) if type(key) is bytes else key, value


def unpack_value(key: Any, value: Any, who: str) -> Any:
    """Reverse `pack_value`. ClusterError, with its key, if it cannot be read."""
    if type(value) is not bytes:
        return value
    try:
        return pickle.loads(value)
    except BaseException as error:  # the value's own code
        raise ClusterError(
            f"state[{repr_of(key)}] of {who} cannot be read: {text_of_error(error)}; it was stored by other code: put "
            "that back, or begin anew (--fresh)"
        ) from error


def pickled(value: Any, what: Callable[[], str], refusal: type[ComponentError] = ComponentError) -> bytes:
    """A value of the user's as a pickle. `refusal` if that cannot be; `what` makes the text that names it."""
    try:
        return pickle.dumps(value, 5)
    except BaseException as error:  # the value's own code
        raise refusal(
            f"{what()} is {repr_of(value)}, of type {type_name(value)}, which cannot be stored: "
            f"{text_of_error(error)}; allowed: values that can be pickled"
        ) from error


def pack_value(key: Any, value: Any) -> Any:
    """A value as it is stored. UnstorableError, with its key, if it cannot be pickled."""
    return value if is_native(value) else pickled(value, lambda: f"state[{repr_of(key)}]", UnstorableError)


class TaskStore:
    """The open store of a task, or one in memory."""

    def __init__(self, directory: str | None, who: str, full: bool = False) -> None:
        """`directory`: of the task's state; None: in memory. `who`: the task, for errors. Raises ClusterError if the
        file is damaged."""
        self.path = ":memory:" if directory is None else os.path.join(directory, STORE_FILE)
        self.who, self.where = who, f"{self.path}, the state of {who},"
        self._db: Any = None
        self._unlock: Callable[[], object] = lambda: None
        self._lock: int | None = None
        if directory is not None:
            self._lock = self._locked(directory)
            # Also if nobody closes it: a task that is refused leaves nothing open.
            self._unlock = weakref.finalize(self, os.close, self._lock)
        try:
            self._db = connected(self.path, "FULL" if full else "OFF", _SCHEMA)
            if full and directory is not None:
                sync_directories(directory)
            self.commits: int = self.meta("commits") or 0
            """Number of the last one."""
            self._check_commits()
            known = self.meta("format")
            if known not in (None, _FORMAT):
                raise ClusterError(f"{self.where} has format {known!r}; this Squall reads {_FORMAT}")
            if known is None:
                with self.changing():
                    self.put_meta("format", _FORMAT)
                    self.put_meta("id", os.urandom(8).hex())
            self.id = str(self.meta("id"))
            """Another store, such as after `--fresh`, has another."""
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error | ValueError):
                raise self._error(error, "opened") from error
            raise

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._db is not None:
            self._db.close()
        self._unlock()

    def _locked(self, directory: str) -> int:
        # Of the process, and not inherited: what a worker's code forks does not keep it.
        lock = os.open(os.path.join(directory, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise ClusterError(
                f"{self.where} is open in another process: an earlier life of the task, or another topology; end that "
                "first"
            ) from error
        return lock

    def _check_commits(self) -> None:
        lost = 0 if self._lock is None else int.from_bytes(os.pread(self._lock, 8, 0), "little") - self.commits
        if lost > 0:
            raise ClusterError(
                f"{self.where} lacks its last {plural(lost, 'commit')}: it or state.db-wal beside it is damaged or "
                "missing; put back a copy of the whole directory, or begin anew with --fresh (what is acked does not "
                "come again)"
            )

    def _error(self, error: BaseException, doing: str) -> ClusterError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        remedy = "; a quota or a limit (`ulimit -f`) may be reached" if code == sqlite3.SQLITE_IOERR else ""
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            remedy = "; it is damaged: put back a copy, or begin anew with --fresh (what is acked does not come again)"
        return ClusterError(f"{self.where} cannot be {doing}: {message_of(error)}{remedy}")

    def _run(self, doing: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call SQLite. ClusterError for its errors, and for what `marshal` and `pickle` say of damaged keys."""
        try:
            return call(*arguments)
        except (sqlite3.Error, pickle.UnpicklingError, ValueError, EOFError, TypeError) as error:
            raise self._error(error, doing) from error

    def serialized(self) -> bytes:
        """The file as it would be if it were closed now."""
        return bytes(self._db.serialize())

    # ---- written together ----

    def begin(self) -> None:
        """Begin a commit. ClusterError if it cannot be written."""
        self._run("written", self._db.execute, "BEGIN IMMEDIATE")

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Commit what is written in it, or nothing if that fails."""
        self.begin()
        try:
            yield
        except BaseException:
            self.undo()
            raise
        self.end()

    def end(self) -> None:
        """Commit what was written since `begin`."""
        number = self.commits + 1
        try:
            self.put_meta("commits", number)
            self._run("written", self._db.execute, "COMMIT")
        except ClusterError:
            self.undo()
            raise
        self._count(number)

    def _count(self, number: int) -> None:
        self.commits = number
        if self._lock is not None:
            os.pwrite(self._lock, number.to_bytes(8, "little"), 0)

    def become(self, other: TaskStore) -> None:
        """Hold what another one does, which has more commits, and nothing else; this is one commit."""
        self._run("written", other._db.backup, self._db)
        self._count(other.commits)

    def undo(self) -> None:
        """Drop what was written since `begin`."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def write(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run a statement for each of these rows."""
        self._run("written", self._db.executemany, statement, rows)

    def append(self, number: int, changes: dict[Any, Any]) -> int:
        """Append the changes of a commit to the log: keys and their packed values, GONE if there is none any more.
        Returns its size in bytes."""
        if not have_own_forms(changes):
            changes = {spelt(key): value for key, value in changes.items()}
        packed = pickle.dumps(changes, 5)
        self.write("INSERT INTO log VALUES (?, ?)", [(number, packed)])
        return len(packed)

    def cut_log(self, number: int) -> None:
        """Remove the changes of all commits before this one: the table has them."""
        self.write("DELETE FROM log WHERE number < ?", [(number,)])

    def log(self) -> Iterator[tuple[int, dict[Any, Any]]]:
        """The commits of the log with their changes, in order."""
        for number, changes in read_log(self.read(LOG), self.where):
            yield number, {read_key(key, self.where): value for key, value in changes.items()}

    def put(self, items: Iterable[tuple[Any, Any]], at: int | None = None) -> None:
        """Put packed values in their places in the table; `at`: now, in seconds of any clock, if they age."""
        rows = [
            # Most keys are text: without a call for each.
            (pack_form(key), value, at) if type(key) in PLAIN else (*_pack_row(key, value), at) for key, value in items
        ]
        self.write("INSERT OR REPLACE INTO state VALUES (?, ?, ?)", [row for row in rows if row[1] is not GONE])
        self.write("DELETE FROM state WHERE key = ?", [(key,) for key, value, _ in rows if value is GONE])

    def remove_older(self, at: int, most: int) -> list[Any]:
        """Remove up to `most` values that were set before; return their keys."""
        rows = self.read(
            "DELETE FROM state WHERE key IN (SELECT key FROM state WHERE at < ? LIMIT ?) "
            "RETURNING key, CASE substr(value, 1, 1) WHEN ? THEN value END", (at, most, _SPELT)
        )
        unpacked = self._run("read", lambda: [unpack_row(*row) for row in rows])
        return [read_key(key, self.where) for key, _ in unpacked]

    def put_meta(self, name: str, value: Any) -> None:
        """Set one of the values that are not the user's."""
        self.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(name, value)])

    # ---- read ----

    def read(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """The rows that a query finds."""
        return self._run("read", lambda: self._db.execute(query, values).fetchall())  # type: ignore[no-any-return]

    def rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        """The same one by one, for many."""
        return iter(self._run("read", self._db.execute, query))

    def meta(self, name: str) -> Any:
        """One of the values that are not the user's; None if it is not there."""
        rows = self.read("SELECT value FROM meta WHERE name = ?", (name,))
        return rows[0][0] if rows else None

    def get(self, key: Any) -> Any:
        """The packed value of a key in the table; GONE if there is none."""
        try:
            rows = self.read("SELECT value FROM state WHERE key = ?", (pack_key(key),))
        except ValueError:  # it has no form
            return GONE
        return self._run("read", unpack_row, None, rows[0][0])[1] if rows else GONE

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All keys in the table, and their packed values."""
        rows = self._run("read", self._db.execute, "SELECT key, value FROM state")
        unpacked = self._run("read", lambda: [unpack_row(key, value) for key, value in rows])
        return ((read_key(key, self.where), value) for key, value in unpacked)

    def count(self, most: int = -1) -> int:
        """The number of keys, or `most` if there are more."""
        return int(self.read("SELECT count(*) FROM (SELECT 1 FROM state LIMIT ?)", (most,))[0][0])


class Reader:
    """Follows the store of another task, which may not be there yet."""

    def __init__(self, directory: str, file: str = STORE_FILE) -> None:
        self._path = Path(directory, file)
        self._db: sqlite3.Connection | None = None
        self._version = -1

    def changed(self, *queries: str) -> list[list[Any]] | None:
        """What each query finds, at one moment, if anything in the store has changed since the last call."""
        try:
            if self._db is None:
                self._db = sqlite3.connect(
                    f"{self._path.as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=30,
                    check_same_thread=False,  # its task may be prepared by another
                )
            version = self._db.execute("PRAGMA data_version").fetchone()[0]
            if version == self._version:
                return None
            self._db.execute("BEGIN")
            try:
                found = [self._db.execute(query).fetchall() for query in queries]
            finally:
                self._db.execute("COMMIT")
        except sqlite3.OperationalError:
            return None  # its task has not made it yet
        self._version = version
        return found

    def again(self) -> None:
        """Have the next call look, whether anything has changed or not."""
        self._version = -1

    def close(self) -> None:
        """Close the store."""
        if self._db is not None:
            self._db.close()
