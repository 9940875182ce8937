"""What Nimbus must not forget: topologies, assignments and deaths, in one SQLite file.

Guarantees
    * A method that returned has its change on disk as far as `kill -9` of any process goes; what is inside one
      `transaction` happens together or not at all. (A power cut may lose the newest changes, never corrupt.)
    * A damaged file, or one of another version, is refused at open with what to do; never an empty store in silence.
    * Of a topology's deaths the newest RESTARTS_KEPT are kept, and all are counted.
    * A full disk or a lock held longer than BUSY_TIMEOUT_SECS is a StoreError that names the file.

Relies on: one writing process (Nimbus holds the run directory's lock); the file's directory being on a local disk,
because WAL shares memory. One owner thread.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec

from engine.errors import ClusterError
from scheduler.messages import Assignment, RestartRecord, TopologyRecord

SCHEMA_VERSION = 1
BUSY_TIMEOUT_SECS = 5.0
"""How long a write waits for a foreign lock (somebody's sqlite3 shell), before Nimbus gives up and dies."""
RESTARTS_KEPT = 1000
"""Deaths kept per topology. More tell an operator nothing new, fewer hide how a crash loop began."""

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
"""

S = TypeVar("S", bound=msgspec.Struct)


class StoreError(ClusterError):
    """The store could not be read or written. Nimbus ends rather than go on with a memory that is not on disk."""


class StoredTopology(NamedTuple):
    """What is kept of one topology, apart from its deaths."""

    record: TopologyRecord
    assignment: Assignment | None
    kill_wait_secs: float
    restarts_total: int


class Store:
    """An open store. Close it, or use it as a context manager."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        if not os.path.exists(self.path):
            self._create()
        self._db = self._connect(self.path)
        try:
            self._open()
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. May be called again."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is done inside happens together, or not at all if an error leaves the block. An inner one joins in."""
        if self._db.in_transaction:
            yield
            return
        self._run("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            # A full disk may have ended the transaction already.
            if self._db.in_transaction:
                self._run("ROLLBACK")
            raise
        self._run("COMMIT")

    # ---- topologies ----

    def next_number(self) -> int:
        """The number the next submitted topology will get. Rises with every `put_topology` of a new id, never falls."""
        return int(self._one("SELECT value FROM counter WHERE name = 'submitted'")[0]) + 1

    def put_topology(self, record: TopologyRecord) -> None:
        """Add a topology, or replace its record."""
        body = msgspec.msgpack.encode(record)
        if self._run("UPDATE topology SET record = ? WHERE id = ?", body, record.id).rowcount:
            return
        with self.transaction():
            number = self.next_number()
            columns = (record.id, number, record.name, body)
            self._run("INSERT INTO topology (id, number, name, record) VALUES (?, ?, ?, ?)", *columns)
            self._run("UPDATE counter SET value = ? WHERE name = 'submitted'", number)

    def set_status(self, topology_id: str, status: str, kill_wait_secs: float = 0.0) -> None:
        """Change a topology's status; with "KILLED", how long it may still run."""
        (body,) = self._one("SELECT record FROM topology WHERE id = ?", topology_id)
        record = msgspec.structs.replace(self._decode(body, TopologyRecord), status=status)
        self._run(
            "UPDATE topology SET record = ?, kill_wait_secs = ? WHERE id = ?",
            msgspec.msgpack.encode(record),
            kill_wait_secs,
            topology_id,
        )

    def delete_topology(self, topology_id: str) -> None:
        """Forget a topology, its assignment and its deaths."""
        self._run("DELETE FROM topology WHERE id = ?", topology_id)

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
        body = msgspec.msgpack.encode(assignment)
        self._run("INSERT OR REPLACE INTO assignment VALUES (?, ?)", assignment.topology_id, body)

    def assignment(self, topology_id: str) -> Assignment | None:
        """Where a topology runs; None while it waits for a slot."""
        rows = self._run("SELECT body FROM assignment WHERE topology_id = ?", topology_id).fetchall()
        return self._decode(rows[0][0], Assignment) if rows else None

    # ---- deaths ----

    def add_restart(self, topology_id: str, restart: RestartRecord) -> None:
        """Add a death; the same slot and incarnation again replaces it (when its replacement got ready)."""
        body = msgspec.msgpack.encode(restart)
        key = (topology_id, restart.slot, restart.incarnation)
        changed = self._run(
            "UPDATE restart SET body = ? WHERE topology_id = ? AND slot = ? AND incarnation = ?", body, *key
        )
        if changed.rowcount:
            return
        with self.transaction():
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
            "SELECT body FROM restart WHERE topology_id = ? ORDER BY number DESC LIMIT ?", topology_id, last
        ).fetchall()
        return [self._decode(body, RestartRecord) for (body,) in reversed(rows)]

    # ---- parts ----

    def _open(self) -> None:
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
            self._run(f"PRAGMA {pragma}")
        # quick_check says what is wrong inside; a file that is no database at all has raised before.
        (found,) = self._one("PRAGMA quick_check(1)")
        if found != "ok":
            raise self._damaged(" ".join(found.split()))
        (version,) = self._one("PRAGMA user_version")
        if version == 0:
            raise self._damaged("it is empty or somebody else's")
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"store {self.path} has version {version}, this Squall reads {SCHEMA_VERSION}: "
                f"use the Squall that wrote it, or another run directory"
            )

    def _create(self) -> None:
        """Make an empty store appear complete or not at all, so that one found empty is known to be damaged."""
        if os.path.exists(f"{self.path}-wal"):
            raise self._damaged("the file itself is missing")
        temporary = f"{self.path}.new"
        if os.path.exists(temporary):
            os.unlink(temporary)
        db = self._connect(temporary)
        try:
            db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        except sqlite3.Error as error:
            raise StoreError(f"cannot make store {self.path}: {error}") from error
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
            raise StoreError(f"store {self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error

    def _one(self, sql: str, *values: object) -> Sequence[Any]:
        row: Sequence[Any] | None = self._run(sql, *values).fetchone()
        if row is None:
            raise StoreError(f"store {self.path} has no {values[0] if values else sql!r}")
        return row

    def _decode(self, body: bytes, struct: type[S]) -> S:
        try:
            return msgspec.msgpack.decode(body, type=struct)
        except msgspec.DecodeError as error:
            raise self._damaged(f"a {struct.__name__} in it does not decode: {error}") from error

    def _damaged(self, why: object) -> StoreError:
        return StoreError(
            f"store {self.path} is damaged ({why}): stop the cluster, move this file and its -wal and -shm files away, "
            f"start the cluster again and submit the topologies anew; or put back a copy"
        )
