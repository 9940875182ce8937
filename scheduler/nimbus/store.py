"""Nimbus's durable memory: topologies, assignments and deaths, in one SQLite file.

Guarantees
    * When a method returns, its change is on disk; all changes inside one `transaction` happen, or none.
    * A file that is damaged, missing, older, or of another version is refused at open with advice, and not changed;
      an empty or older store is never taken silently. Each change is counted (generation), and a digest over all rows
      is kept in the store and beside it (see `scheduler.nimbus.store_seal`); each death's row has a digest of its own.
    * The ids of deleted topologies are kept (the newest DELETED_KEPT): the remains of a deleted topology may be
      removed, those of an unknown one must not.
    * Of a topology's deaths the newest RESTARTS_KEPT are kept, and all are counted.
    * A full disk or a lock held longer than BUSY_TIMEOUT_SECS is a StoreError that names the file.

Relies on: one writing process (Nimbus holds the run directory's lock). A change costs two to four waits for the disk;
changes are rare: submissions, commands, deaths. Thread: Nimbus's loop.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec

from squall.engine.errors import ClusterError
from squall.ipc.private import gone_if_failed
from squall.scheduler.common import process
from squall.scheduler.common.messages import Assignment, RestartRecord, TopologyRecord
from squall.scheduler.nimbus.store_seal import Seal, SealDamaged, SealFile, read_seal

SCHEMA_VERSION = 2
BUSY_TIMEOUT_SECS = 5.0
"""Longest that a write waits for a foreign lock (an operator's sqlite3 shell) before Nimbus gives up and ends."""
MOST_PAGES = 4294967294
"""SQLite's own limit on a file's pages."""
RESTARTS_KEPT = 1000
"""Deaths kept per topology: more tell an operator nothing new, fewer hide how a crash loop began."""
DELETED_KEPT = 1000
"""Ids of deleted topologies kept: plenty, since their remains go within seconds, or at Nimbus's next start."""
STORE_FILES = ("nimbus.db", "nimbus.db-journal", "nimbus.db-wal", "nimbus.db-shm", "nimbus.seal", "nimbus.seal.new")
"""All files that a store may have in the run directory."""
_DIGEST_BYTES = 16
"""Enough that altered rows do not pass by chance."""

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
CREATE TABLE seal (generation INTEGER NOT NULL, digest TEXT NOT NULL, before TEXT NOT NULL);
INSERT INTO seal VALUES (0, '', '');
"""

_SEALED = (
    "SELECT id, number, name, record, kill_wait_secs, restarts_total FROM topology ORDER BY id",
    "SELECT topology_id, body FROM assignment ORDER BY topology_id",
    "SELECT name, value FROM counter ORDER BY name",
    "SELECT number, id FROM deleted ORDER BY number",
)
"""The rows that the digest covers. Deaths have digests of their own: there may be thousands."""

S = TypeVar("S", bound=msgspec.Struct)


class StoreError(ClusterError):
    """The store cannot be read or written. Nimbus ends rather than go on with state that is not on disk."""


class StoredTopology(NamedTuple):
    """The row of one topology, without its deaths."""

    record: TopologyRecord
    assignment: Assignment | None
    kill_wait_secs: float
    restarts_total: int


class Store:
    """An open store. Close it, or use it as a context manager."""

    def __init__(self, path: str | os.PathLike[str], believe: bool = False) -> None:
        """`believe`: an operator vouches for the file's rows, whatever the seal says; they are sealed anew."""
        self.path = os.fspath(path)
        self._seal_path = f"{os.path.splitext(self.path)[0]}.seal"
        self._seal_file = SealFile(self._seal_path)
        if not os.path.exists(self.path):
            self._create()
        self._tears = False
        self._db = self._connect(self.path)
        try:
            self._open()
            if believe:
                self._check_rows()
                with self.transaction():
                    pass
            else:
                self._check_seal()
        except (sqlite3.Error, ValueError, TypeError) as error:
            # Fetching or reading altered columns fails in these ways.
            self._db.close()
            raise self._damaged(error) from error
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

    def tear(self, wanted: bool) -> None:
        """Inject a fault: this process dies in the middle of its next transaction."""
        self._tears = wanted

    def limit_growth(self, limited: bool) -> None:
        """Inject a fault: the store may not grow, as if the disk were full."""
        self._run(f"PRAGMA max_page_count = {1 if limited else MOST_PAGES}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes of the block, or none if an error leaves it. An inner transaction joins the outer."""
        if self._db.in_transaction:
            yield
            return
        self._run("BEGIN IMMEDIATE")
        try:
            yield
            self._seal_file.prepare(self._advance())
            if self._tears:
                process.kill_myself()
            self._run("COMMIT")
        except BaseException as error:
            # A full disk may have ended the transaction already.
            if self._db.in_transaction:
                self._run("ROLLBACK")
            self._seal_file.withdraw()
            if isinstance(error, OSError):
                raise self._unsealed(error) from error
            raise
        try:
            self._seal_file.put()
        except OSError as error:
            # Committed, but not sealed: the next Nimbus accepts a store that is one change ahead.
            raise self._unsealed(error) from error

    def _unsealed(self, error: OSError) -> StoreError:
        return StoreError(f"store {self.path}: cannot write {self._seal_path}: {error.strerror}")

    def _advance(self) -> Seal:
        """Count the change that is about to be committed; returns its seal."""
        generation, before = self._one("SELECT generation, digest FROM seal")
        seal = Seal(generation + 1, self._digest())
        self._run("UPDATE seal SET generation = ?, digest = ?, before = ?", *seal, before)
        return seal

    def _digest(self) -> str:
        """The digest over all rows but deaths."""
        total = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for query in _SEALED:
            for row in self._run(query):
                # Lengths keep bytes of one column from passing for a part of the next.
                for value in row:
                    data = value if isinstance(value, bytes) else repr(value).encode()
                    total.update(b"%d:" % len(data))
                    total.update(data)
            total.update(b";")
        return total.hexdigest()

    # ---- topologies ----

    def next_number(self) -> int:
        """The number of the next submitted topology. Rises with every `put_topology` of a new id, never falls."""
        return int(self._one("SELECT value FROM counter WHERE name = 'submitted'")[0]) + 1

    def put_topology(self, record: TopologyRecord) -> None:
        """Add a topology, or replace its record."""
        body = msgspec.msgpack.encode(record)
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
                msgspec.msgpack.encode(record),
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
        body = msgspec.msgpack.encode(assignment)
        with self.transaction():
            self._run("INSERT OR REPLACE INTO assignment VALUES (?, ?)", assignment.topology_id, body)

    # ---- deaths ----

    def add_restart(self, topology_id: str, restart: RestartRecord) -> None:
        """Add a death, or replace the one of the same slot and incarnation (when its replacement got ready)."""
        key = (topology_id, restart.slot, restart.incarnation)
        body = _with_digest(key, msgspec.msgpack.encode(restart))
        with self.transaction():
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
            "SELECT slot, incarnation, body FROM restart WHERE topology_id = ? ORDER BY number DESC LIMIT ?",
            *(topology_id, last),
        ).fetchall()
        return [self._restart((topology_id, slot, incarnation), body) for slot, incarnation, body in reversed(rows)]

    def _restart(self, key: tuple[str, str, int], body: bytes) -> RestartRecord:
        content = body[_DIGEST_BYTES:]
        if _with_digest(key, content) != body:
            raise self._damaged(f"the death of incarnation {key[2]} of {key[0]} is not as it was written")
        return self._decode(content, RestartRecord)

    # ---- parts ----

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

    def _check_seal(self) -> None:
        """Refuse a store that is not in the state last written."""
        try:
            sealed = read_seal(self._seal_path)
        except SealDamaged as error:
            raise self._damaged(error) from None
        except OSError as error:
            raise StoreError(f"store {self.path}: cannot read {self._seal_path}: {error.strerror}") from error
        generation, digest, before = self._one("SELECT generation, digest, before FROM seal")
        # A new store has no seal. After its first change, one whose writer died between the steps has a prepared one.
        if sealed is None and generation and not self._seal_file.is_prepared(Seal(generation, digest)):
            raise self._damaged(f"its seal {self._seal_path} is missing")
        if digest != (self._digest() if generation else ""):
            raise self._damaged("its rows are not as they were written")
        if sealed is not None and not sealed.fits(generation, digest, before):
            raise self._damaged(f"it is change {generation}, the seal beside it is of change {sealed.generation}")
        self._check_rows()
        self._settle_seal(sealed, Seal(generation, digest))

    def _settle_seal(self, sealed: Seal | None, present: Seal) -> None:
        """Finish what a writer that died has left undone."""
        if sealed == present or not present.generation:
            self._seal_file.withdraw()
            return
        try:
            self._seal_file.settle(present)
        except OSError as error:
            raise self._unsealed(error) from error

    def _check_rows(self) -> None:
        """Refuse rows that do not decode, or are missing."""
        for record, _, _, total in self.topologies():
            found = len(self.restarts(record.id))
            if found != min(total, RESTARTS_KEPT):
                raise self._damaged(f"{record.id} has {found} deaths on record, of {total}")

    def _create(self) -> None:
        """Make an empty store, complete or not at all, so that an empty file is known to be damage."""
        for name in (f"{self.path}-wal", f"{self.path}-journal", self._seal_path):
            if os.path.exists(name):
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
        try:
            return msgspec.msgpack.decode(body, type=struct)
        except msgspec.DecodeError as error:
            raise self._damaged(f"a {struct.__name__} in it does not decode: {error}") from error

    def _damaged(self, why: object) -> StoreError:
        words = " ".join(str(why).split())
        return StoreError(
            f"store {self.path} is damaged ({words}); nothing was stopped or removed: put back a copy of it and of "
            f"nimbus.seal, or run `squall repair --dir {os.path.dirname(self.path)}` with --believe or --empty"
        )


def _said(error: sqlite3.Error) -> str:
    """SQLite's text for an error; adds the system's for a full disk, which SQLite words differently."""
    full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return f"{error}: {os.strerror(errno.ENOSPC)}" if full else str(error)


def _with_digest(key: tuple[str, str, int], content: bytes) -> bytes:
    """A death's row behind a digest of key and content, so that one that was altered or swapped is noticed."""
    found = hashlib.blake2b(repr(key).encode(), digest_size=_DIGEST_BYTES)
    found.update(content)
    return found.digest() + content
