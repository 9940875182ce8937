"""The records of a spout: the numbers of its partitions and names, and what is settled of each, for all of its tasks.

::

    tasks of the spout ── what each has settled, every 50 ms ──► records.db ──► tasks with state, by a look now and then

It is one SQLite file in the directory that the spout's tasks share. So what is settled belongs to a partition and not
to a task: a partition that moves to another task, in this life or with another number of tasks, is the same one.

Guarantees
    * A number, once given to a partition or to a name, is the same for every task and life; a name may be forgotten.
    * What is settled only grows, whoever writes it. With `full`, it survives power loss: what tasks with state forget
      because of it was on disk before they could read it.

Relies on SQLite for writers that take turns. Thread: the task's.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from squall.engine.errors import ClusterError
from squall.engine.foreign.files import locked, sync_directories
from squall.engine.foreign.text import message_of
from squall.engine.state.keys import pack_key
from squall.engine.state.records.ranges import Ranges
from squall.engine.state.task_store import connected

RECORDS_FILE = "records.db"
SHARED = "shared"
"""The directory of a component that its tasks share (`TopologyContext.directory_of`)."""
BUSY, QUIET, ENDED = "busy", "quiet", "ended"
"""A task of a spout has records open or more to read; has none and read nothing lately; has none, and is exhausted."""
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS partitions (
        number INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, settled BLOB NOT NULL, buried BLOB NOT NULL,
        begun INTEGER NOT NULL, newest INTEGER NOT NULL, broken TEXT NOT NULL, version INTEGER NOT NULL);
    CREATE INDEX IF NOT EXISTS by_version ON partitions (version);
    CREATE TABLE IF NOT EXISTS readers (
        partition INTEGER, task INTEGER, at INTEGER, is_read INTEGER, open INTEGER, PRIMARY KEY (partition, task));
    CREATE TABLE IF NOT EXISTS tasks (task INTEGER PRIMARY KEY, activity TEXT NOT NULL, declares INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS names (name PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS counts (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
    INSERT OR IGNORE INTO counts VALUES ('names', 0), ('version', 0);
"""
PARTITIONS = "SELECT number, settled, buried, begun, newest, version FROM partitions WHERE version > ?"
READERS = "SELECT partition, task, at, is_read, open FROM readers"
TASKS = "SELECT task, activity, declares FROM tasks"


class Reading(NamedTuple):
    """How far a task is in a partition that it reads."""

    at: int
    """The number that it has read last, of a partition that is read in order; else -1."""
    is_read: bool
    """True if it has read everything that is there at the moment."""
    open: int = -1
    """The lowest number that it has open; -1 if none."""


class PartitionProgress(NamedTuple):
    """What one task has to tell of a partition."""

    partition: int
    """Its number among those of the spout."""
    settled: Sequence[tuple[int, int]]
    """Ranges that are settled since the last time, or dead letters."""
    buried: Sequence[int]
    """Those of them that are dead letters."""
    begun: int
    """The number from which this life has read it: holes below are not filled any more."""
    newest: int


class TaskState(NamedTuple):
    """What a task of a spout is doing."""

    activity: str
    declares: bool
    """True if it has told which partitions it reads, or has emitted a record."""


class SharedFile:
    """A SQLite file that several tasks write, in turn."""

    def __init__(self, path: str, what: str, synchronous: str, schema: str) -> None:
        """`what`: its content, for errors. Raises ClusterError if the file is damaged."""
        self._where = f"{path}, {what},"
        try:
            # Of those who open a new file at once SQLite lets one make its log, and refuses the others without a wait.
            with contextlib.nullcontext() if path == ":memory:" else locked(os.path.dirname(path)):
                self._db = connected(path, synchronous, schema)
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _error(self, error: sqlite3.Error) -> ClusterError:
        return ClusterError(f"{self._where} cannot be used: {message_of(error)}")

    @contextlib.contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Commit what is written in it, or nothing if that fails."""
        try:
            with self._db as db:
                db.execute("BEGIN IMMEDIATE")
                yield db
        except sqlite3.Error as error:
            raise self._error(error) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()


class RecordStore(SharedFile):
    """The records of a spout, as one of its tasks writes them."""

    def __init__(self, directory: str | None, who: str, task: int = 0, tasks: int = 1, full: bool = False) -> None:
        """`directory`: the one that all tasks share; None: in memory, of this task alone. Raises ClusterError if the
        file is damaged."""
        path = ":memory:" if directory is None else os.path.join(directory, RECORDS_FILE)
        super().__init__(path, f"the records of {who}", "FULL" if full else "OFF", _SCHEMA)
        self._who, self._task, self._is_shared = who, task, directory is not None
        self._first, self._step = (0, 1) if directory is not None else (task, tasks)
        if full and directory is not None:
            sync_directories(directory)

    def __reduce__(self) -> Any:
        return _restored, (self._who, self._task, self._step, self.serialized())

    def close(self) -> None:
        """Close the file. Records in memory stay as long as this does."""
        if self._is_shared:
            super().close()

    def serialized(self) -> bytes:
        """Return the file as it would be if it were closed now."""
        return bytes(self._db.serialize())

    # ---- numbers ----

    def partition(self, name: str) -> tuple[int, int, str]:
        """Return the number of a partition among those of the spout, the same for every task and life; the number below
        which nothing of it is open, 0 if that is not known; and why nothing may be emitted in it any more, "" if it
        may."""
        query = "SELECT number, settled, broken FROM partitions WHERE name = ?"
        row = self._db.execute(query, (name,)).fetchone()
        if row is None:
            with self.changing() as db:
                db.execute(
                    "INSERT OR IGNORE INTO partitions SELECT ? + ? * count(*), ?, ?, ?, 0, -1, '', 0 FROM partitions",
                    (self._first, self._step, name, Ranges().packed, Ranges().packed),
                )
            row = self._db.execute(query, (name,)).fetchone()
        number, packed, why = row
        return number, next((end for _, end in Ranges.unpacked(packed)), 0), why

    def numbers(self, names: Sequence[Any]) -> list[int]:
        """Return a number for each name, the same for every task and life until it is forgotten."""
        keys = list(map(pack_key, names))
        with self.changing() as db:
            known = self._known(keys)
            fresh = [key for key in dict.fromkeys(keys) if key not in known]
            if fresh:
                [(count,)] = db.execute("SELECT value FROM counts WHERE name = 'names'")
                given = list(zip(fresh, range(count, count + len(fresh)), strict=True))
                db.executemany("INSERT INTO names VALUES (?, ?)", given)
                db.execute("UPDATE counts SET value = ? WHERE name = 'names'", (count + len(fresh),))
                known.update(given)
        return [known[key] for key in keys]

    def _known(self, keys: Sequence[Any]) -> dict[Any, int]:
        known: dict[Any, int] = {}
        for begin in range(0, len(keys), 500):
            some = keys[begin : begin + 500]
            marks = ", ".join("?" * len(some))
            known.update(self._db.execute(f"SELECT name, number FROM names WHERE name IN ({marks})", some))
        return known

    # ---- what is settled ----

    def is_buried(self, partition: int, number: int) -> bool:
        """Return True if a record has become a dead letter."""
        [(packed,)] = self._db.execute("SELECT buried FROM partitions WHERE number = ?", (partition,))
        return number in Ranges.unpacked(packed)

    def break_off(self, partition: int, why: str) -> None:
        """Have nothing emitted in a partition any more."""
        with self.changing() as db:
            db.execute("UPDATE partitions SET broken = ? WHERE number = ?", (why, partition))

    def tell(
        self, activity: str, reads: Mapping[int, Reading] | None = None, progress: Iterable[PartitionProgress] = (),
        forgotten: Iterable[Any] = (),
    ) -> None:
        """Tell what this task is doing, what it reads by partition (None: as before), what it has settled, and the
        names whose records will not come again."""
        with self.changing() as db:
            # With what is settled of them: else a name that comes again all the same would be another record.
            db.executemany("DELETE FROM names WHERE name = ?", [(pack_key(name),) for name in forgotten])
            for its in progress:
                db.execute("UPDATE counts SET value = value + 1 WHERE name = 'version'")
                [(settled, buried)] = db.execute(
                    "SELECT settled, buried FROM partitions WHERE number = ?", (its.partition,)
                )
                if its.settled:
                    settled = _with(settled, its.settled)
                if its.buried:
                    buried = _with(buried, ((number, number + 1) for number in its.buried))
                db.execute(
                    "UPDATE partitions SET settled = ?, buried = ?, begun = ?, newest = max(newest, ?), "
                    "version = (SELECT value FROM counts WHERE name = 'version') WHERE number = ?",
                    (settled, buried, its.begun, its.newest, its.partition),
                )
            declares = reads is not None
            if reads is not None:
                db.execute("DELETE FROM readers WHERE task = ?", (self._task,))
                db.executemany(
                    "INSERT INTO readers VALUES (?, ?, ?, ?, ?)",
                    [(partition, self._task, *reading) for partition, reading in reads.items()],
                )
            db.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?)", (self._task, activity, declares))


def _with(packed: bytes, ranges: Iterable[tuple[int, int]]) -> bytes:
    union = Ranges.unpacked(packed)
    for start, end in ranges:
        union.add(start, end)
    return union.packed


def write_merged(directory: str, contents: Mapping[str, bytes]) -> None:
    """Write the records of tasks that have a store in memory each, by their names, as one store."""
    store = RecordStore(directory, directory)
    for task, content in contents.items():
        rows = _restored("", 0, 1, content)._db.execute(
            "SELECT number, ? || ' ' || name, settled, buried, begun, newest, broken, version FROM partitions", (task,)
        )
        with store.changing() as db:
            db.executemany("INSERT INTO partitions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    store.close()


def _restored(who: str, task: int, tasks: int, content: bytes) -> RecordStore:
    store = RecordStore(None, who, task, tasks)
    store._db.deserialize(content)
    return store
