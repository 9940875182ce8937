"""Nimbus's durable memory: topologies, assignments and deaths, in one SQLite file.

Guarantees
    * When a method returns, its change is on disk; all changes inside one `transaction` happen, or none.
    * Each change but a death is in a copy beside the store, too, before the method returns. A store that is lost, or
      that SQLite's `integrity_check` finds damaged, is set aside, and the copy goes on in its place, as the log says.
      Without a whole copy the store is refused with advice, and not changed.
    * A new store is made only in a directory without traces of topologies: running work must not be forgotten in
      silence. A store of another version is refused.
    * The ids of deleted topologies are kept (the newest DELETED_KEPT): the remains of a deleted topology may be
      removed, those of an unknown one must not.
    * Of a topology's deaths the newest RESTARTS_KEPT are kept, and all are counted.
    * A full disk or a lock held longer than BUSY_TIMEOUT_SECS is a StoreError that names the file.

Relies on: one writing process (Nimbus holds the run directory's lock). A change costs some waits for the disk; changes
are rare: submissions, commands, deaths. Thread: Nimbus's loop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import msgspec

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.private import gone_if_failed, replace_file, sync_directory
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import Assignment, RestartRecord, TopologyRecord
from squall.scheduler.nimbus.instruction import (
    DeleteTopology,
    RemoveUnknown,
    StoreAssignment,
    StoreChange,
    StoreRestart,
    StoreTopology,
)

if TYPE_CHECKING:
    from squall.scheduler.nimbus.zookeeper_store import ZooKeeperStore

SCHEMA_VERSION = 4
BUSY_TIMEOUT_SECS = 5.0
"""Longest that a write waits for a foreign lock (an operator's sqlite3 shell) before Nimbus gives up and ends."""
RESTARTS_KEPT = 1000
"""Deaths kept per topology: more tell an operator nothing new, fewer hide how a crash loop began."""
DELETED_KEPT = 1000
"""Ids of deleted topologies kept: plenty, since their remains go within seconds, or at Nimbus's next start."""
STORE_FILES = ("nimbus.db", "nimbus.db-journal", "nimbus.db.copy")
"""All files that a store may have in the run directory."""

_ADVICE = "nothing was stopped or removed: put back a copy of it, or run `squall down` and begin in another directory"
_SCHEMA = """
CREATE TABLE topology (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, record BLOB NOT NULL,
    assignment BLOB, restarts_total INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE restart (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    topology_id TEXT NOT NULL REFERENCES topology(id) ON DELETE CASCADE,
    slot TEXT NOT NULL, incarnation INTEGER NOT NULL, body BLOB NOT NULL,
    UNIQUE (topology_id, slot, incarnation)
);
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
        super().__init__(f"{self.words}; {_ADVICE}")


class StoredTopology(NamedTuple):
    """One topology."""

    record: TopologyRecord
    assignment: Assignment | None
    restarts: list[RestartRecord]
    """The newest deaths, oldest first."""
    restarts_total: int


AnyStore: TypeAlias = "Store | ZooKeeperStore"


def open_store(run_dir: RunDir) -> AnyStore:
    """Open the store of a run directory, whose lock the caller holds; make one if the directory is new."""
    if run_dir.zookeeper.exists():
        with needing_kazoo():
            from squall.scheduler.nimbus.zookeeper_store import open_alone
        return open_alone(run_dir)
    if not any((run_dir.durable / name).exists() for name in STORE_FILES):
        refuse_traces(run_dir, f"store {run_dir.nimbus_db}")
    return Store(run_dir.nimbus_db)


def refuse_traces(run_dir: RunDir, store: str) -> None:
    """StoreError if a directory whose store is not there has traces of topologies."""
    for directory, pattern in (
        (run_dir.boards, "*"), (run_dir.code, "[0-9a-f]*"), (run_dir.path / "n", "*.worker"),
    ):
        if trace := next(directory.glob(pattern), None):
            raise StoreError(f"{store} is missing, though there is {trace}; {_ADVICE}")


@contextlib.contextmanager
def needing_kazoo() -> Iterator[None]:
    """Around an import of `scheduler.nimbus.zookeeper_store`: UsageError without kazoo."""
    try:
        yield
    except ImportError as error:
        raise UsageError(f"ZooKeeper needs another package: pip install 'squall[zookeeper]' ({error})") from None


def store_all(store: AnyStore, changes: Sequence[StoreChange]) -> None:
    """Store changes in one transaction, if any: a full disk must not end a Nimbus that has nothing to store."""
    if not changes:
        return
    with store.transaction():
        for change in changes:
            match change:
                case StoreTopology(record):
                    store.put_topology(record)
                case StoreAssignment(assignment):
                    store.put_assignment(assignment)
                case StoreRestart(topology_id, restart):
                    store.add_restart(topology_id, restart)
                case DeleteTopology(topology_id):
                    store.delete_topology(topology_id)
                case RemoveUnknown(topology_id):
                    store.put_deleted(topology_id)


@contextlib.contextmanager
def kept_topologies(run_dir: RunDir) -> Iterator[list[TopologyRecord]]:
    """The topologies that go on with the next Nimbus of a directory without one; none can start meanwhile."""
    lock = run_dir.lock()
    try:
        with open_store(run_dir) as store:
            records = [stored.record for stored in store.topologies()]
        yield records
    finally:
        lock.release()


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

    @contextlib.contextmanager
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
        rows = self._run("SELECT seq FROM sqlite_sequence WHERE name = 'topology'").fetchall()
        return int(rows[0][0]) + 1 if rows else 1

    def put_topology(self, record: TopologyRecord) -> None:
        """Add a topology, or replace its record."""
        body = msgspec.msgpack.encode(record)
        with self.transaction():
            if not self._run("UPDATE topology SET record = ? WHERE id = ?", body, record.id).rowcount:
                self._run("INSERT INTO topology (id, name, record) VALUES (?, ?, ?)", record.id, record.name, body)

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
        rows = self._run("SELECT id, record, assignment, restarts_total FROM topology ORDER BY number").fetchall()
        return [
            StoredTopology(
                self._decode(record, TopologyRecord), body and self._decode(body, Assignment),
                self._restarts(topology_id), total,
            )
            for topology_id, record, body, total in rows
        ]

    def put_assignment(self, assignment: Assignment) -> None:
        """Add or replace a topology's assignment."""
        body = msgspec.msgpack.encode(assignment)
        with self.transaction():
            self._run("UPDATE topology SET assignment = ? WHERE id = ?", body, assignment.topology_id)

    # ---- deaths ----

    def add_restart(self, topology_id: str, restart: RestartRecord) -> None:
        """Add a death, or replace the one of the same slot and incarnation (when its replacement got ready)."""
        key = (topology_id, restart.slot, restart.incarnation)
        body = msgspec.msgpack.encode(restart)
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

    def _restarts(self, topology_id: str) -> list[RestartRecord]:
        rows = self._run("SELECT body FROM restart WHERE topology_id = ? ORDER BY number", topology_id).fetchall()
        return [self._decode(body, RestartRecord) for (body,) in rows]

    # ---- parts ----

    def _opened(self) -> sqlite3.Connection:
        """Connect to a store that is whole."""
        if not os.path.exists(self.path):
            raise _Damaged(self.path, "it is missing")
        self._db = self._connect(self.path)
        try:
            self._open()
            self.topologies()  # rows that do not decode are damage, too
        except (sqlite3.Error, ValueError, TypeError) as error:
            # Fetching or reading altered columns fails in these ways.
            self._db.close()
            raise _Damaged(self.path, error) from error
        except BaseException:
            self._db.close()
            raise
        return self._db

    def _open(self) -> None:
        # Checks indexes too: a row missing from an index would be found by some queries only.
        ((found,),) = self._run("PRAGMA integrity_check(1)")
        if found != "ok":
            raise _Damaged(self.path, found)
        ((version,),) = self._run("PRAGMA user_version")
        if version == 0:
            raise _Damaged(self.path, "it is empty or not Squall's")
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
                with open(temporary, "rb") as file:
                    os.fsync(file.fileno())
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
            replace_file(Path(self.path), Path(self._copy).read_bytes(), sync=True)
        except OSError as error:
            raise StoreError(f"store {self.path}: cannot be made from its copy: {error}") from error

    def _create(self) -> None:
        """Make an empty store, complete or not at all, so that an empty file is known to be damage."""
        if os.path.exists(f"{self.path}-journal"):
            raise _Damaged(self.path, "the file itself is missing")
        temporary = f"{self.path}.new"
        Path(temporary).unlink(missing_ok=True)
        with gone_if_failed(temporary):
            try:
                with contextlib.closing(self._connect(temporary)) as db:
                    db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
            except sqlite3.Error as error:
                raise StoreError(f"cannot make store {self.path}: {error}") from error
            os.rename(temporary, self.path)

    def _connect(self, path: str) -> sqlite3.Connection:
        try:
            return sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECS, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"cannot open store {path}: {error}") from error

    def _run(self, sql: str, *values: object) -> sqlite3.Cursor:
        try:
            return self._db.execute(sql, values)
        except sqlite3.DatabaseError as error:
            # The generic error: a table or column that every store has is not in this one.
            generic = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
            if isinstance(error, sqlite3.OperationalError | sqlite3.IntegrityError) and not generic:
                raise StoreError(f"store {self.path}: {error}") from error
            raise _Damaged(self.path, error) from error

    def _decode(self, body: bytes, struct: type[S]) -> S:
        try:
            return msgspec.msgpack.decode(body, type=struct)
        except ValueError as error:
            raise _Damaged(self.path, f"a {struct.__name__} in it does not decode: {error}") from error
