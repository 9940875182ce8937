"""A simulated Nimbus whose store and boards are the product's, on files in memory that can fail it.

Guarantees: it dies as `kill -9` ends it, between any two steps of a transaction and of the copy after it, and
in the middle of the writes to the database: what it then leaves is what was on disk at that moment. A store that is
locked or full is so for SQLite itself.

Not simulated: files that lose what was written, as at a loss of power.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from squall.scheduler.common.messages import Assignment, TopologyRecord
from squall.scheduler.nimbus.decisions import Nimbus
from squall.scheduler.nimbus.files import NimbusFiles
from squall.scheduler.nimbus.instruction import (
    CreateBoard,
    DeleteTopology,
    NimbusInstruction,
    RemoveBoard,
    RemoveUnknown,
    StoreAssignment,
    StoreChange,
    StoreRestart,
    StoreStatus,
    StoreTopology,
)
from squall.scheduler.nimbus.leftovers import mend_boards, tidy_boards
from squall.scheduler.nimbus.store import STORE_FILES, Store, StoreError
from squall.scheduler.nimbus.topology_life import TopologyLife
from squall.scheduler.records.topology_view import TopologyView
from tests.sim.daemons import Died, NimbusDaemon
from tests.sim.invariants import RESTED_EARLY, STORE_DIFFERS, InvariantBrokenError
from tests.unit.run_dirs import LimitedStore

if TYPE_CHECKING:
    from tests.sim.joined_machine import JoinedMachine

LOCKED, FULL = "locked", "full"
_DIES_INSIDE = 0.1
"""How likely it is that Nimbus dies inside of a transaction, if that takes as many steps."""
_MOST_STEPS = 14

Step = Callable[[str], None]
Content = dict[str, tuple[TopologyRecord, Assignment | None]]


class SimulatedStore(LimitedStore):
    """Waits for no lock, writes to the database in the middle of a transaction, and passes a step at each change."""

    def __init__(self, path: str, step: Step) -> None:
        self._step: Step = lambda name: None
        super().__init__(path)
        self._step = step

    def _connect(self, path: str) -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=0.0, isolation_level=None)

    def _open(self) -> None:
        super()._open()
        # A page at a time: so changed pages reach the file before the commit, and a death leaves half of them.
        self._run("PRAGMA cache_size = 1")

    def _run(self, sql: str, *values: object) -> sqlite3.Cursor:
        found = super()._run(sql, *values)
        if not sql.startswith(("SELECT", "PRAGMA", "BEGIN", "ROLLBACK")):
            self._step(sql.split(" ", 1)[0])
        return found


class StoredNimbus(NimbusDaemon):
    """One Nimbus after the other, on the files that the one before has left."""

    machine: JoinedMachine

    def __init__(self, machine: JoinedMachine, decisions: type[Nimbus] = Nimbus) -> None:
        super().__init__(machine, decisions)
        self.fault = ""
        """What is wrong with the store now: LOCKED, FULL or nothing."""
        self._files = NimbusFiles(machine.run_dir)
        self._store_file: LimitedStore | None = None
        self._lock: sqlite3.Connection | None = None
        self._dies_in: int | None = None
        self._left: dict[str, bytes] | None = None
        """The store's files at the moment of its death, if that was inside of a write."""
        self._before: Content | None = None
        """The content before a transaction whose commit the death forestalled: the next one finds that again."""

    # ---- life ----

    def start(self) -> None:
        try:
            super().start()
        except StoreError as error:
            self._ends_by(error)

    def _read_store(self) -> tuple[list[TopologyLife], int, set[str]]:
        store = self.machine.parts.store(str(self.machine.run_dir.nimbus_db), self._step)
        self._store_file = store
        if self._before is not None and (found := _content(store)) != self._before:
            raise InvariantBrokenError(STORE_DIFFERS, f"of an undone transaction: {found}, before: {self._before}")
        self._before = None
        store.limit_growth(self.fault == FULL)
        lives = [
            TopologyLife(record, assignment, store.restarts(record.id), total, wait_secs)
            for record, assignment, wait_secs, total in store.topologies()
        ]
        return lives, store.next_number(), store.deleted()

    def _tidy_boards(self, lives: list[TopologyLife], deleted: set[str]) -> set[str]:
        unknown = tidy_boards(self.machine.run_dir, lives, deleted)
        mend_boards(self.machine.run_dir, lives)
        return unknown

    def kill(self) -> None:
        super().kill()
        if self._store_file is not None:
            self._store_file.close()
            self._store_file = None
        left, self._left = self._left, None
        if left is not None:
            self._put_back(left)

    def do(self, decide: Callable[[], Any]) -> bool:
        try:
            return super().do(decide)
        except StoreError as error:
            self._ends_by(error)
            return False

    def let_go(self) -> None:
        """The life is over: close what is open."""
        self.break_store("")
        if self._store_file is not None:
            self._store_file.close()

    def _ends_by(self, error: StoreError) -> None:
        """As the product's: it ends rather than go on with what is not stored."""
        self.machine.note(f"nimbus ends: {str(error).replace(str(self.machine.run_dir.path), '')}")
        if not self.fault:
            raise InvariantBrokenError(STORE_DIFFERS, f"with nothing wrong with it: {error}") from error
        self.kill()

    # ---- what is wrong with the store ----

    def break_store(self, fault: str) -> None:
        """From now on the store is locked or full; with "" it is well again."""
        self.fault = fault
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if fault == LOCKED:
            self._lock = sqlite3.connect(str(self.machine.run_dir.nimbus_db), timeout=0.0, isolation_level=None)
            try:
                self._lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                # The journal of a Nimbus that died is hot, and cannot be rolled back in this moment.
                self.break_store("")
        if self._store_file is not None:
            with contextlib.suppress(StoreError):  # it is locked
                self._store_file.limit_growth(fault == FULL)

    def _step(self, name: str) -> None:
        """A step of a write: it may be the last."""
        if self._dies_in is None or self._left is not None:
            return
        self._dies_in -= 1
        if self._dies_in < 0:
            self.machine.note(f"nimbus dies after {name}")
            if name in ("COMMIT", "VACUUM"):
                self._before = None
            self._left = {}
            for file in STORE_FILES:
                with contextlib.suppress(FileNotFoundError):
                    self._left[file] = (self.machine.run_dir.path / file).read_bytes()
            raise Died

    def _put_back(self, left: dict[str, bytes]) -> None:
        """What the process has done since it died, it has not done."""
        if self._lock is not None:
            self.break_store("")
        for file in STORE_FILES:
            path = self.machine.run_dir.path / file
            path.unlink(missing_ok=True)
            if file in left:
                path.write_bytes(left[file])

    # ---- what is done ----

    def _store_all(self, changes: list[StoreChange]) -> None:
        if not changes:
            return
        rng, store = self.machine.rng, self._store_file
        assert store is not None
        dies = self.tears and rng.random() < _DIES_INSIDE
        self._dies_in = rng.randrange(_MOST_STEPS) if dies else None
        self._before = _content(store) if dies else None
        with store.transaction():
            for change in changes:
                _store(store, change)
        self._before = None

    def _make_board(self, step: CreateBoard) -> None:
        self._files.make_board(step)

    def _tell(self, step: NimbusInstruction) -> None:
        if isinstance(step, RemoveBoard):
            self._files.remove_board(step.topology_id, step.version)
        else:
            super()._tell(step)

    def _is_at_rest(self, record: TopologyRecord, assignment: Assignment) -> bool:
        board = self.machine.board(record.id, assignment.version)
        if board is None or not TopologyView(board, assignment, record).is_at_rest():
            return False
        pending = self.machine.open_messages(record.id, assignment.version)
        if pending:
            raise InvariantBrokenError(RESTED_EARLY, f"{record.id}, of which {pending} messages are open")
        return True

    def check_store(self) -> None:
        """What is on disk is what it knows."""
        store = self._store_file
        assert store is not None
        stored = _content(store)
        known = {record.id: (record, assignment) for record, assignment in self.nimbus.assigned()}
        for one in stored.keys() | known.keys():
            if stored.get(one) != known.get(one):
                raise InvariantBrokenError(STORE_DIFFERS, f"{one}: {stored.get(one)}, known: {known.get(one)}")


def _content(store: Store) -> Content:
    return {row.record.id: (row.record, row.assignment) for row in store.topologies()}


def _store(store: Store, change: StoreChange) -> None:
    """As `NimbusService` does it."""
    match change:
        case StoreTopology(record):
            store.put_topology(record)
        case StoreStatus(topology_id, status, kill_wait_secs):
            store.set_status(topology_id, status, kill_wait_secs)
        case StoreAssignment(assignment):
            store.put_assignment(assignment)
        case StoreRestart(topology_id, restart):
            store.add_restart(topology_id, restart)
        case DeleteTopology(topology_id):
            store.delete_topology(topology_id)
        case RemoveUnknown(topology_id):
            store.put_deleted(topology_id)
