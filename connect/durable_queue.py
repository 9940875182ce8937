"""Queue: a durable queue in a directory, for several producers and consumers, without a server.

Guarantees
    * `put` returns when its records are on disk; a power failure loses none of them.
    * A record that was opened is given to nobody else until it is aborted, or its consumer closes or dies, however it
      dies. One that was confirmed is never given again, but after a power failure.
    * First in, first out, but for records that come again.

Records are rows of `queue.db`, an SQLite database in WAL mode. A consumer has claims, ranges of rows whose rest is
open, and a lock on a file of its name, which the kernel lifts when its process ends. Claims are made in ascending
order, so every row behind the last one is free. The queue's random id and a row's id name a record for good: SQLite
gives no id twice, and a row is on disk before it can be opened, so a power failure takes none back.

Relies on a local file system: neither SQLite's WAL nor such locks work over a network.

Thread: any, one at a time for each object.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from squall.engine.errors import UsageError
from squall.engine.foreign.files import locked
from squall.engine.foreign.text import repr_of, text_of_error

_TABLES = (
    "CREATE TABLE IF NOT EXISTS records (id INTEGER PRIMARY KEY AUTOINCREMENT, row BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS claims (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, consumer TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS queue (id TEXT NOT NULL)",
    "INSERT INTO queue SELECT lower(hex(randomblob(8))) WHERE NOT EXISTS (SELECT 1 FROM queue)",
)
_WAIT_SECS = 20.0
"""Longest wait for others that write."""
_NOBODY = ""


class QueueRecord(NamedTuple):
    id: int
    row: tuple[Any, ...] | None
    """Its values; None if they were not written by a queue."""


class QueueCounts(NamedTuple):
    """What is in a queue."""

    waiting: int
    open: int
    consumers: int
    size_bytes: int


class Queue:
    """The queue in a directory, which is made if it is missing."""

    def __init__(self, path: str | os.PathLike[str], must_exist: bool = False) -> None:
        """UsageError if there can be no queue there; TimeoutError if another program has it locked."""
        self.path = Path(path).absolute()
        """Its directory."""
        self._file = self.path / "queue.db"
        if must_exist and not self._file.is_file():
            raise UsageError(f"{self.path} holds no queue; `squall queue put {path}` makes one")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self._file, _WAIT_SECS, isolation_level=None, check_same_thread=False)
            self._inode = self._file.stat().st_ino
            with locked(self.path):
                # SQLite refuses whoever else turns a new file into one with a log at this moment, without a wait.
                self._db.execute("PRAGMA journal_mode = WAL")
            with self._changing():
                for table in _TABLES:
                    self._db.execute(table)
            (self.id,) = self._db.execute("SELECT id FROM queue").fetchone()
            """What tells it from any other queue, also from one that was in this directory before."""
        except (OSError, sqlite3.DatabaseError) as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY:
                raise TimeoutError(f"{self.path} is locked by another program for {_WAIT_SECS:g} s") from error
            raise UsageError(f"{self.path} cannot be a queue: {text_of_error(error)}") from error
        self._name, self._lock = "", -1

    @contextlib.contextmanager
    def _changing(self, synced: bool = True) -> Iterator[None]:
        self._db.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
        if self._file.stat().st_ino != self._inode:
            raise FileNotFoundError(f"{self.path} was removed; a new queue is in its place")
        self._db.execute("BEGIN IMMEDIATE")
        with self._db:  # commits, or rolls back
            yield

    # ---- producers ----

    def put(self, rows: Sequence[Sequence[Any]]) -> None:
        """Append records: of each its values, which msgpack can hold (None, bools, numbers, text, bytes, dates, and
        lists and dicts of these). TypeError, OverflowError or ValueError for others; then none is appended."""
        self.put_packed([pack(row) for row in rows])

    def put_packed(self, rows: Sequence[bytes]) -> None:
        """Append what `pack` made."""
        with self._changing():
            self._db.executemany("INSERT INTO records (row) VALUES (?)", zip(rows, strict=True))

    # ---- consumers ----

    def open(self, most: int) -> list[QueueRecord]:
        """Take up to `most` records, or what a consumer that is gone had taken. Empty if there are none."""
        if not self._name:
            self._become_consumer()
        free = "SELECT id, row FROM records WHERE id > (SELECT ifnull(max(last), 0) FROM claims) ORDER BY id LIMIT ?"
        if not self._has_abandoned() and not self._db.execute(free, (1,)).fetchone():
            return []
        with self._changing(synced=False):  # a power failure that undoes it gives records back
            if (claim := self._adopt()) is not None:
                its = "SELECT id, row FROM records WHERE id BETWEEN ? AND ? ORDER BY id"
                return _unpacked(self._db.execute(its, claim))
            found = self._db.execute(free, (most,)).fetchall()
            if found:
                self._db.execute("INSERT INTO claims VALUES (?, ?, ?)", (found[0][0], found[-1][0], self._name))
            return _unpacked(found)

    def confirm(self, ids: Sequence[int]) -> None:
        """Remove records that were opened here: they are done."""
        ids = sorted(ids)
        with self._changing(synced=False):
            self._db.executemany("DELETE FROM records WHERE id BETWEEN ? AND ?", _runs(ids))
            self._db.execute(
                "DELETE FROM claims WHERE consumer = ? AND NOT EXISTS "
                "(SELECT 1 FROM records WHERE id BETWEEN first AND last)", (self._name,),
            )

    def abort(self) -> None:
        """Give back all that is open here and not confirmed."""
        if self._name:
            self._db.execute("UPDATE claims SET consumer = ? WHERE consumer = ?", (_NOBODY, self._name))

    def close(self) -> None:
        """Give back what is open, and let the files go."""
        try:
            self.abort()
        finally:  # without its lock, it is a consumer that is gone
            self._db.close()
            if self._name:
                self._lock_path(self._name).unlink(missing_ok=True)
                os.close(self._lock)
                self._name = ""

    def _become_consumer(self) -> None:
        name = secrets.token_hex(8)
        self._lock = os.open(self._lock_path(name), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._name = name

    def _lock_path(self, name: str) -> Path:
        return self.path / f"consumer-{name}.lock"

    def _has_abandoned(self) -> bool:
        return any(self._is_gone(name) for name in self._consumers())

    def _consumers(self) -> list[str]:
        found = self._db.execute("SELECT DISTINCT consumer FROM claims WHERE consumer <> ?", (self._name,))
        return [name for (name,) in found]

    def _is_gone(self, name: str) -> bool:
        if name == _NOBODY:
            return True
        try:
            with locked(self._lock_path(name), fcntl.LOCK_EX | fcntl.LOCK_NB):
                return True
        except FileNotFoundError:
            return True
        except BlockingIOError:
            return False

    def _adopt(self) -> tuple[int, int] | None:
        """Take over a claim of a consumer that is gone."""
        for name in self._consumers():
            if self._is_gone(name):
                claim: tuple[int, int] = self._db.execute(
                    "UPDATE claims SET consumer = ? WHERE first = (SELECT min(first) FROM claims WHERE consumer = ?) "
                    "RETURNING first, last", (self._name, name),
                ).fetchone()
                if name not in self._consumers():
                    self._lock_path(name).unlink(missing_ok=True)
                return claim
        return None

    # ---- anyone ----

    def peek(self, most: int) -> list[QueueRecord]:
        """Return the first records, open or not, and change nothing."""
        return _unpacked(self._db.execute("SELECT id, row FROM records ORDER BY id LIMIT ?", (most,)))

    def floor(self) -> int:
        """Return the number below which no record can be opened any more: each one that was there is confirmed."""
        (lowest,) = self._db.execute(
            "SELECT ifnull(min(id), 1 + (SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'records')) "
            "FROM records"
        ).fetchone()
        return int(lowest)

    def counts(self) -> QueueCounts:
        """Count what is in it."""
        self._db.execute("BEGIN")
        with self._db:
            (total,) = self._db.execute("SELECT count(*) FROM records").fetchone()
            taken = [name for name in self._consumers() if not self._is_gone(name)] + [self._name] * bool(self._name)
            marks = ", ".join("?" * len(taken))
            (opened,) = self._db.execute(
                "SELECT count(*) FROM claims JOIN records ON id BETWEEN first AND last "
                f"WHERE consumer IN ({marks})", taken,
            ).fetchone()
        size_bytes = sum(file.stat().st_size for file in self.path.glob("queue.db*"))
        return QueueCounts(total - opened, opened, len(taken), size_bytes)


def pack(row: Sequence[Any]) -> bytes:
    """Make the bytes of a record. TypeError, OverflowError or ValueError for what msgpack cannot hold."""
    if not isinstance(row, list | tuple):
        raise TypeError(f"{repr_of(row)} is no record; allowed: a list or tuple of its values")
    return _ENCODER.encode(row)


def row_mistake(row: Sequence[Any], error: Exception) -> str:
    """Say why a row cannot be put."""
    return f"a queue cannot hold {repr_of(tuple(row))}: {text_of_error(error)}"


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Any])


def _unpacked(found: Any) -> list[QueueRecord]:
    records = []
    for id_, packed in found:
        try:
            records.append(QueueRecord(id_, tuple(_DECODER.decode(packed))))
        except (msgspec.MsgspecError, TypeError):
            records.append(QueueRecord(id_, None))
    return records


def _runs(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of each run of ascending numbers without a gap."""
    first = last = None
    for one in ids:
        if last is not None and one == last + 1:
            last = one
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = one
    if first is not None and last is not None:
        yield first, last
