"""Nimbus's books in one SQLite file, which is Nimbus's durable memory.

Guarantees
    * Each change but a death is in a copy beside the store, too, before the method returns. A store that is lost, or
      that SQLite's `integrity_check` finds damaged, is set aside, and the copy goes on in its place, as the log says.
      Without a whole copy the store is refused with advice, and not changed.
    * A new store is made only in a directory without traces of topologies. A store of another version is refused.
    * A full disk or a lock held longer than BUSY_TIMEOUT_SECS is a StoreError that names the file.

Relies on: one writing process (Nimbus holds the run directory's lock). A change costs some waits for the disk; changes
are rare: submissions, commands, deaths. Thread: Nimbus's loop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from squall.engine.foreign.files import sync
from squall.ipc.private import gone_if_failed, replace_file
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import TopologyRecord
from squall.scheduler.nimbus.books import (
    ADVICE,
    BUSY_TIMEOUT_SECS,
    Books,
    StoreError,
    has_other_than_deaths,
    refuse_traces,
    rows_of,
)
from squall.scheduler.nimbus.instruction import (
    DeleteTopology,
    RemoveUnknown,
    StoreAssignment,
    StoreChange,
    StoreRestart,
    StoreTopology,
)

SCHEMA_VERSION = 5
STORE_FILES = ("nimbus.db", "nimbus.db-journal", "nimbus.db.copy")
"""All files that a store may have in the run directory."""

_SCHEMA = "CREATE TABLE book (name TEXT PRIMARY KEY, body BLOB NOT NULL);"

log = logging.getLogger(__name__)


class _Damaged(StoreError):
    """The store is not as it was written, or missing."""

    def __init__(self, path: str, why: object) -> None:
        self.words = f"store {path} is damaged ({' '.join(str(why).split())})"
        super().__init__(f"{self.words}; {ADVICE}")


def open_store(run_dir: RunDir) -> Books:
    """Open the store of a run directory, whose lock the caller holds; make one if the directory is new."""
    if run_dir.zookeeper.exists():
        from squall.scheduler.nimbus.zookeeper import open_alone

        return open_alone(run_dir)
    if not any((run_dir.durable / name).exists() for name in STORE_FILES):
        refuse_traces(run_dir, f"store {run_dir.nimbus_db}")
    return Store(run_dir.nimbus_db)


def store_all(store: Books, changes: Sequence[StoreChange]) -> None:
    """Store changes in one transaction."""
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
    with run_dir.lock():
        with open_store(run_dir) as store:
            records = [stored.record for stored in store.topologies()]
        yield records


class Store(Books):
    """The books in a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._copy = f"{self.path}.copy"
        if not os.path.exists(self.path) and not os.path.exists(self._copy):
            self._create()
        try:
            rows = self._opened()
        except _Damaged as error:
            if not os.path.exists(self._copy):
                raise
            self._take_copy(error)
            rows = self._opened()
        super().__init__(rows)
        try:
            self._make_copy()
        except StoreError as error:
            # On a full disk a store can still be read.
            log.warning("%s", error)

    def close(self) -> None:
        """Close the file. May be called again."""
        self._db.close()

    def _write(self, changes: Mapping[str, bytes | None], before: Collection[str]) -> None:
        self._run("BEGIN IMMEDIATE")
        try:
            for name, body in changes.items():
                if body is None:
                    self._run("DELETE FROM book WHERE name = ?", name)
                else:
                    self._run("INSERT OR REPLACE INTO book (name, body) VALUES (?, ?)", name, body)
            self._run("COMMIT")
        except BaseException:
            # A full disk may have ended the transaction already.
            if self._db.in_transaction:
                self._run("ROLLBACK")
            raise
        if has_other_than_deaths(changes):
            self._make_copy()

    # ---- parts ----

    def _opened(self) -> dict[str, Any]:
        """Connect to a store that is whole; returns its rows."""
        if not os.path.exists(self.path):
            raise _Damaged(self.path, "it is missing")
        self._db = self._connect(self.path)
        try:
            self._open()
            return self._read()
        except (sqlite3.Error, ValueError, TypeError) as error:
            # Fetching or reading altered rows fails in these ways.
            self._db.close()
            raise _Damaged(self.path, error) from error
        except BaseException:
            self._db.close()
            raise

    def _read(self) -> dict[str, Any]:
        return rows_of(self._run("SELECT name, body FROM book"))

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
        for pragma in ("journal_mode = TRUNCATE", "synchronous = FULL"):
            self._run(f"PRAGMA {pragma}")

    def _make_copy(self) -> None:
        temporary = f"{self._copy}.new"
        try:
            with gone_if_failed(temporary):
                Path(temporary).unlink(missing_ok=True)
                self._run("VACUUM INTO ?", temporary)
                sync(temporary)
                os.rename(temporary, self._copy)
            sync(os.path.dirname(self.path) or ".")
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
            if isinstance(error, sqlite3.OperationalError) and not generic:
                raise StoreError(f"store {self.path}: {error}") from error
            raise _Damaged(self.path, error) from error
