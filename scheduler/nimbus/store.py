"""Nimbus's durable memory: topologies, assignments and deaths, in one SQLite file.

Guarantees
    * When a method returns, its change is on disk; all changes inside one `transaction` happen, or none.
    * Each change but a death is in a copy beside the store, too, before the method returns. A store that is damaged
      (SQLite's `integrity_check`, checksums of the rows) or missing is set aside, and the copy goes on in its place,
      as the log says. Without a whole copy the store is refused with advice, and not changed.
    * A new store is made only where there is neither; one of another version is refused.
    * The ids of deleted topologies are kept (the newest DELETED_KEPT): the remains of a deleted topology may be
      removed, those of an unknown one must not.
    * Of a topology's deaths the newest RESTARTS_KEPT are kept, and all are counted.
    * A full disk or a lock held longer than BUSY_TIMEOUT_SECS is a StoreError that names the file.

Relies on: one writing process (Nimbus holds the run directory's lock). A change costs some waits for the disk; changes
are rare: submissions, commands, deaths. Thread: Nimbus's loop.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from squall.engine.errors import ClusterError
from squall.ipc.private import gone_if_failed, sync_directory
from squall.scheduler.common.messages import Assignment, RestartRecord, TopologyRecord

SCHEMA_VERSION = 3
BUSY_TIMEOUT_SECS = 5.0
"""Longest that a write waits for a foreign lock (an operator's sqlite3 shell) before Nimbus gives up and ends."""
RESTARTS_KEPT = 1000
"""Deaths kept per topology: more tell an operator nothing new, fewer hide how a crash loop began."""
DELETED_KEPT = 1000
"""Ids of deleted topologies kept: plenty, since their remains go within seconds, or at Nimbus's next start."""
_CHECK_BYTES = 4
STORE_COPY = "nimbus.db.copy"
STORE_FILES = ("nimbus.db", "nimbus.db-journal", STORE_COPY)
"""All files that a store may have in the run directory."""

_SCHEMA = """
CREATE TABLE topology (
    id TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, record BLOB NOT NULL,
    kill_wait_secs REAL NOT NULL DEFAULT 0, restarts_total INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE assignment (
    topology_id TEXT PRIMARY KEY REFERENCES topology(id) ON DELETE CASCADE, body BLOB NOT NULL
);
CREATE TABLE restart (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    topology_id TEXT NOT NULL REFERENCES topology(id) ON DELETE CASCADE,
    slot TEXT NOT NULL, incarnation INTEGER NOT NULL, body BLOB NOT NULL,
    UNIQUE (topology_id, slot, incarnation)
);
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO counter VALUES ('submitted', 0);
CREATE TABLE deleted (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE);
"""

S = TypeVar("S", bound=msgspec.Struct)

log = logging.getLogger(__name__)


class StoreError(ClusterError):
    """The store cannot be read or written. Nimbus ends rather than go on with state that is not on disk."""


class _Damaged(StoreError):
    """The store is not as it was written, or missing."""

    def __init__(self, path: str, why: object) -> None:
        self.words = f"store {path} is damaged ({' '.join(str(why).split())})"
        super().__init__(
            f"{self.words}; nothing was stopped or removed: put back a copy of it, or run "
            f"`squall repair --dir {os.path.dirname(path)} --empty`"
        )


class StoredTopology(NamedTuple):
    """The row of one topology, without its deaths."""

    record: TopologyRecord
    assignment: Assignment | None
    kill_wait_secs: float
    restarts_total: int


class Store:
    """An open store. Close it, or use it as a context manager."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._copy = f"{self.path}.copy"
        if not os.path.exists(self.path) and not os.path.exists(self._copy):
            self._create()
        try:
            self._db = self._opened()
        except _Damaged as error:
            if not os.path.exists(self._copy):
                raise
            self._take_copy(error)
            self._db = self._opened()
        try:
            self._make_copy()
        except StoreError as error:
            # On a full disk a store can still be read.
            log.warning("%s", error)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. May be called again."""
        self._db.close()

    @contextmanager
    def transaction(self, *, copies: bool = True) -> Iterator[None]:
        """Commit all changes of the block, or none if an error leaves it. An inner transaction joins the outer.

        `copies`: whether the change is worth a copy of the store."""
        if self._db.in_transaction:
            yield
            return
        self._run("BEGIN IMMEDIATE")
        try:
            yield
            self._run("COMMIT")
        except BaseException:
            # A full disk may have ended the transaction already.
            if self._db.in_transaction:
                self._run("ROLLBACK")
            raise
        if copies:
            self._make_copy()

    # ---- topologies ----

    def next_number(self) -> int:
        """The number of the next submitted topology. Rises with every `put_topology` of a new id, never falls."""
        return int(self._one("SELECT value FROM counter WHERE name = 'submitted'")[0]) + 1

    def put_topology(self, record: TopologyRecord) -> None:
        """Add a topology, or replace its record."""
        body = _encode(record)
        with self.transaction():
            if self._run("UPDATE topology SET record = ? WHERE id = ?", body, record.id).rowcount:
                return
            number = self.next_number()
            columns = (record.id, number, record.name, body)
            self._run("INSERT INTO topology (id, number, name, record) VALUES (?, ?, ?, ?)", *columns)
            self._run("UPDATE counter SET value = ? WHERE name = 'submitted'", number)

    def set_status(self, topology_id: str, status: str, kill_wait_secs: float = 0.0) -> None:
        """Change a topology's status; with "KILLED", also how long it may still run."""
        (body,) = self._one("SELECT record FROM topology WHERE id = ?", topology_id)
        record = msgspec.structs.replace(self._decode(body, TopologyRecord), status=status)
        with self.transaction():
            self._run(
                "UPDATE topology SET record = ?, kill_wait_secs = ? WHERE id = ?",
                _encode(record),
                kill_wait_secs,
                topology_id,
            )

    def delete_topology(self, topology_id: str) -> None:
        """Forget a topology, its assignment and its deaths; its id is kept as deleted."""
        with self.transaction():
            self._run("DELETE FROM topology WHERE id = ?", topology_id)
            self.put_deleted(topology_id)

    def put_deleted(self, topology_id: str) -> None:
        """Note that the remains of this topology may be removed."""
        with self.transaction():
            self._run("INSERT OR IGNORE INTO deleted (id) VALUES (?)", topology_id)
            self._run("DELETE FROM deleted WHERE number <= (SELECT MAX(number) FROM deleted) - ?", DELETED_KEPT)

    def deleted(self) -> set[str]:
        """Ids of deleted topologies, as far as they are kept."""
        return {topology_id for (topology_id,) in self._run("SELECT id FROM deleted")}

    def topologies(self) -> list[StoredTopology]:
        """All topologies, in the order of their submission."""
        rows = self._run(
            "SELECT record, body, kill_wait_secs, restarts_total FROM topology"
            " LEFT JOIN assignment ON topology_id = id ORDER BY number"
        )
        return [
            StoredTopology(
                self._decode(record, TopologyRecord), body and self._decode(body, Assignment), wait_secs, total
            )
            for record, body, wait_secs, total in rows
        ]

    # ---- assignments ----

    def put_assignment(self, assignment: Assignment) -> None:
        """Add or replace a topology's assignment."""
        body = _encode(assignment)
        with self.transaction():
            self._run("INSERT OR REPLACE INTO assignment VALUES (?, ?)", assignment.topology_id, body)

    # ---- deaths ----

    def add_restart(self, topology_id: str, restart: RestartRecord) -> None:
        """Add a death, or replace the one of the same slot and incarnation (when its replacement got ready)."""
        key = (topology_id, restart.slot, restart.incarnation)
        body = _encode(restart)
        with self.transaction(copies=False):
            changed = self._run(
                "UPDATE restart SET body = ? WHERE topology_id = ? AND slot = ? AND incarnation = ?", body, *key
            )
            if changed.rowcount:
                return
            self._run("INSERT INTO restart (topology_id, slot, incarnation, body) VALUES (?, ?, ?, ?)", *key, body)
            self._run("UPDATE topology SET restarts_total = restarts_total + 1 WHERE id = ?", topology_id)
            self._run(
                "DELETE FROM restart WHERE topology_id = ? AND number <="
                " (SELECT number FROM restart WHERE topology_id = ? ORDER BY number DESC LIMIT 1 OFFSET ?)",
                *(topology_id, topology_id, RESTARTS_KEPT),
            )

    def restarts(self, topology_id: str, last: int = RESTARTS_KEPT) -> list[RestartRecord]:
        """The newest `last` deaths, oldest first."""
        rows = self._run(
            "SELECT body FROM restart WHERE topology_id = ? ORDER BY number DESC LIMIT ?",
            *(topology_id, last),
        ).fetchall()
        return [self._decode(body, RestartRecord) for (body,) in reversed(rows)]

    # ---- parts ----

    def _opened(self) -> sqlite3.Connection:
        """Connect to a store that is whole."""
        if not os.path.exists(self.path):
            raise self._damaged("it is missing")
        self._db = self._connect(self.path)
        try:
            self._open()
            self._check_rows()
        except (sqlite3.Error, ValueError, TypeError) as error:
            # Fetching or reading altered columns fails in these ways.
            self._db.close()
            raise self._damaged(error) from error
        except BaseException:
            self._db.close()
            raise
        return self._db

    def _open(self) -> None:
        # Checks indexes too: a row missing from an index would be found by some queries only.
        (found,) = self._one("PRAGMA integrity_check(1)")
        if found != "ok":
            raise self._damaged(found)
        (version,) = self._one("PRAGMA user_version")
        if version == 0:
            raise self._damaged("it is empty or not Squall's")
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"store {self.path} has version {version}, this Squall reads {SCHEMA_VERSION}: "
                f"use the Squall that wrote it, or another run directory"
            )
        # No write-ahead log: SQLite silently drops one that was cut or altered, with all its changes.
        for pragma in ("journal_mode = TRUNCATE", "synchronous = FULL", "foreign_keys = ON"):
            self._run(f"PRAGMA {pragma}")

    def _make_copy(self) -> None:
        temporary = f"{self._copy}.new"
        try:
            with gone_if_failed(temporary):
                Path(temporary).unlink(missing_ok=True)
                self._run("VACUUM INTO ?", temporary)
                _sync(temporary)
                os.rename(temporary, self._copy)
            sync_directory(os.path.dirname(self.path) or ".")
        except OSError as error:
            raise StoreError(f"store {self.path}: cannot write {self._copy}: {error.strerror}") from error

    def _take_copy(self, damaged: _Damaged) -> None:
        """Set a damaged store aside, with its journal, which would be applied to the copy."""
        log.error("%s: it is set aside, and its copy %s goes on in its place", damaged.words, self._copy)
        try:
            for name in (self.path, f"{self.path}-journal"):
                if os.path.exists(name):
                    os.rename(name, f"{name}.damaged")
            temporary = f"{self.path}.new"
            with gone_if_failed(temporary):
                shutil.copyfile(self._copy, temporary)
                _sync(temporary)
                os.rename(temporary, self.path)
        except OSError as error:
            raise StoreError(f"store {self.path}: cannot be made from its copy: {error}") from error

    def _check_rows(self) -> None:
        """Refuse rows that do not decode."""
        for topology in self.topologies():
            self.restarts(topology.record.id)

    def _create(self) -> None:
        """Make an empty store, complete or not at all, so that an empty file is known to be damage."""
        if os.path.exists(f"{self.path}-journal"):
            raise self._damaged("the file itself is missing")
        temporary = f"{self.path}.new"
        if os.path.exists(temporary):
            os.unlink(temporary)
        with gone_if_failed(temporary):
            db = self._connect(temporary)
            try:
                db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION};")
                db.execute("COMMIT")
            except sqlite3.Error as error:
                raise StoreError(f"cannot make store {self.path}: {_said(error)}") from error
            finally:
                db.close()
            os.rename(temporary, self.path)

    def _connect(self, path: str) -> sqlite3.Connection:
        try:
            return sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECS, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"cannot open store {path}: {error}") from error

    def _run(self, sql: str, *values: object) -> sqlite3.Cursor:
        try:
            return self._db.execute(sql, values)
        except (sqlite3.OperationalError, sqlite3.IntegrityError) as error:
            # The generic error: a table or column that every store has is not in this one.
            if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:
                raise self._damaged(error) from error
            raise StoreError(f"store {self.path}: {_said(error)}") from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error

    def _one(self, sql: str, *values: object) -> Sequence[Any]:
        row: Sequence[Any] | None = self._run(sql, *values).fetchone()
        if row is None:
            raise StoreError(f"store {self.path} has no {values[0] if values else sql!r}")
        return row

    def _decode(self, body: bytes, struct: type[S]) -> S:
        check, content = body[:_CHECK_BYTES], body[_CHECK_BYTES:]
        if check != _check(content):
            raise self._damaged(f"a {struct.__name__} in it is not as it was written")
        try:
            return msgspec.msgpack.decode(content, type=struct)
        except msgspec.DecodeError as error:
            raise self._damaged(f"a {struct.__name__} in it does not decode: {error}") from error

    def _damaged(self, why: object) -> _Damaged:
        return _Damaged(self.path, why)


def _encode(value: msgspec.Struct) -> bytes:
    """A row's content behind its checksum: SQLite has none."""
    content = msgspec.msgpack.encode(value)
    return _check(content) + content


def _check(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECK_BYTES, "little")


def _said(error: sqlite3.Error) -> str:
    """SQLite's text for an error; adds the system's for a full disk, which SQLite words differently."""
    full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return f"{error}: {os.strerror(errno.ENOSPC)}" if full else str(error)


def _sync(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
