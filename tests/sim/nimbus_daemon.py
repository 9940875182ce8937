"""Nimbus of the simulated cluster: the product's decisions, store and boards, and what carries them out on the machine.

`scheduler.nimbus.service` works with sockets; here the same is done in few lines, in the same order.

Guarantees: it dies as `kill -9` ends it, between any two steps of what it carries out, of a transaction and of the copy
after it, and in the middle of the writes to the database: what it then leaves is what was on disk at that moment. A
store that is locked or full is so for SQLite itself.

Not simulated: files that lose what was written, as at a loss of power.
"""

from __future__ import annotations

import contextlib
import signal
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from squall.engine.errors import ClusterError
from squall.ipc.envelope import Nonce
from squall.scheduler.common.messages import (
    Assignment,
    AssignNode,
    RegisterSupervisor,
    SlotChanged,
    SlotRef,
    SupervisorHeartbeat,
    TopologyRecord,
)
from squall.scheduler.nimbus.books import StoreError
from squall.scheduler.nimbus.decisions import Nimbus
from squall.scheduler.nimbus.instruction import (
    EndWorker,
    NimbusInstruction,
    RemoveBoard,
    SendAssignNode,
    StoreChange,
)
from squall.scheduler.nimbus.nimbus_files import NimbusFiles
from squall.scheduler.nimbus.store import STORE_FILES, store_all
from squall.scheduler.nimbus.topology_life import TopologyLife
from tests.sim.invariants import STORE_DIFFERS, InvariantBrokenError
from tests.sim.machine import Actor, Machine, Process
from tests.unit.run_dirs import LimitedStore

if TYPE_CHECKING:
    from tests.sim.supervisor_daemon import SupervisorDaemon

LOOK_SECS = 0.1
_DIES = 0.02
"""How likely it is that it dies at a step of what it carries out."""
LOCKED, FULL = "locked", "full"
_DIES_INSIDE = 0.1
"""How likely it is that Nimbus dies inside of a transaction, if that takes as many steps."""
_MOST_STEPS = 14

Step = Callable[[str], None]
Content = dict[str, tuple[TopologyRecord, Assignment | None]]


class SimulatedStore(LimitedStore):
    """Waits for no lock, writes to the database in the middle of a transaction, and passes a step at each change."""

    def __init__(self, path: Path, step: Step) -> None:
        self._step: Step = lambda name: None
        super().__init__(path)
        self._step = step

    def _connect(self, path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=0.0, isolation_level=None)
        # Small pages: the rows of a transaction are in several.
        db.execute("PRAGMA page_size = 512")
        return db

    def _open(self) -> None:
        super()._open()
        # A page at a time: so changed pages reach the file before the commit, and a death leaves half of them.
        self._run("PRAGMA cache_size = 1")

    def read_again(self) -> None:
        """Take what is on disk for what is known."""
        self._rows = self._read()

    def _run(self, sql: str, *values: object) -> sqlite3.Cursor:
        found = super()._run(sql, *values)
        if not sql.startswith(("SELECT", "PRAGMA", "BEGIN", "ROLLBACK")):
            self._step(sql.split(" ", 1)[0])
        return found


class Died(Exception):
    """The daemon has been killed where it stood."""


class NimbusDaemon(Actor):
    """One Nimbus after the other."""

    def __init__(self, machine: Machine, decisions: type[Nimbus] = Nimbus) -> None:
        super().__init__()
        self.machine = machine
        self.nodes: dict[str, SupervisorDaemon] = {}
        self.connected: dict[str, int] = {}
        """Nodes whose supervisor is registered with this life of it -> which of its lives."""
        self.tears = True
        self._decisions = decisions
        self._sequence = 0
        self.fault = ""
        """What is wrong with the store now: LOCKED, FULL or nothing."""
        self._files = NimbusFiles(machine.run_dir)
        self._store: SimulatedStore | None = None
        self._lock: sqlite3.Connection | None = None
        self._dies_in: int | None = None
        self._left: dict[str, bytes] | None = None
        """The store's files at the moment of its death, if that was inside of a write."""
        self._before: Content | None = None
        """The content before a transaction whose commit the death forestalled: the next one finds that again."""

    def start(self) -> None:
        machine = self.machine
        self.up = True
        self.epoch += 1
        self.stopped_until = 0.0
        self.connected = {}
        machine.note("nimbus starts")
        try:
            lives, number, deleted = self._read_store()
        except StoreError as error:
            self._ends_by(error)
            return
        unknown = self._files.tidy(lives, deleted)
        self.nimbus = self._decisions(
            self._make_board, self._files.set_state_aside, lives, number, machine.now, deleted, unknown
        )
        self._tick(self.epoch)

    def _read_store(self) -> tuple[list[TopologyLife], int, set[str]]:
        """What is stored: topologies, the next one's number, and ids of those that were deleted."""
        store = self._store = self.machine.parts.store(self.machine.run_dir.nimbus_db, self._step)
        if self._before is not None and (found := _content(store)) != self._before:
            raise InvariantBrokenError(STORE_DIFFERS, f"of an undone transaction: {found}, before: {self._before}")
        self._before = None
        store.limit_growth(self.fault == FULL)
        return [TopologyLife(*stored) for stored in store.topologies()], store.next_number(), store.deleted()

    def kill(self) -> None:
        self.machine.note("nimbus dies")
        self.up = False
        if self._store is not None:
            self._store.close()
            self._store = None
        left, self._left = self._left, None
        if left is not None:
            self._put_back(left)

    def let_go(self) -> None:
        """The life is over: close what is open."""
        self.break_store("")
        if self._store is not None:
            self._store.close()

    def _ends_by(self, error: StoreError) -> None:
        """As the product's: it ends rather than go on with what is not stored."""
        self.machine.note(f"nimbus ends: {str(error).replace(str(self.machine.run_dir.path), '')}")
        if not self.fault:
            raise InvariantBrokenError(STORE_DIFFERS, f"with nothing wrong with it: {error}") from error
        self.kill()

    # ---- what comes ----

    def register(self, request: RegisterSupervisor, answer: Callable[[AssignNode], None]) -> None:
        try:
            done = self.do(lambda: self._register(request))
        except ClusterError as error:
            self.machine.note(f"refused: {error}")
            return
        if done:
            answer(self.nimbus.assign_node(request.node))

    def _register(self, request: RegisterSupervisor) -> list[NimbusInstruction]:
        steps = self.nimbus.register_supervisor(request, self.machine.now)
        self.connected[request.node] = request.started_ticks
        return steps

    def next_nonce(self) -> Nonce:
        """Of a frame to a supervisor, as `ipc.envelope.Sealer` numbers them."""
        self._sequence += 1
        return Nonce(b"%d" % self.epoch, self._sequence)

    def hear(self, node: str, life: int) -> None:
        """A heartbeat of one of the lives of the node's supervisor."""
        if self.connected.get(node) == life:
            self.do(lambda: self.nimbus.heartbeat(SupervisorHeartbeat(node, self.machine.now), self.machine.now))

    def slot_changed(self, changed: SlotChanged, life: int) -> None:
        if self.connected.get(changed.node, life) == life:
            self.do(lambda: self.nimbus.slot_changed(changed, self.machine.now))

    def do(self, decide: Callable[[], Iterable[NimbusInstruction]]) -> bool:
        """Decide and carry out; False if it died of it, or in the same turn before."""
        if not self.up:
            return False
        try:
            self._carry_out(list(decide()))
        except Died:
            self.kill()
        except StoreError as error:
            self._ends_by(error)
        return self.up

    def _tick(self, epoch: int) -> None:
        if not self.up or self.epoch != epoch:
            return
        machine, nimbus = self.machine, self.nimbus
        now = machine.now
        if self.stopped_until <= now:
            for life in nimbus.draining():
                if self._is_at_rest(life.record, life.assignment):
                    self.do(lambda life=life: nimbus.drained(life.record.id, now))  # type: ignore[misc]
            for life, slots in nimbus.unaccounted(now):
                living = [slot for slot in slots if self.known(life.assignment, slot)]
                self.do(lambda r=life.record, s=slots, a=living: nimbus.looked(r.id, s, a, now))  # type: ignore[misc]
            for life, slots in nimbus.missing(now):
                if not all(self.known(life.assignment, slot) for slot in slots):
                    self.do(lambda life=life: nimbus.lost(life.record.id, now))  # type: ignore[misc]
            self.do(lambda: nimbus.tick(now))
        machine.after(LOOK_SECS, lambda: self._tick(epoch))

    def _is_at_rest(self, record: TopologyRecord, assignment: Assignment) -> bool:
        return self.machine.is_at_rest(record, assignment)

    def known(self, assignment: Assignment, slot: SlotRef) -> list[Process]:
        """As `living_workers`: by the board, and by the ledger of the supervisor."""
        board = self.machine.board(assignment.topology_id, assignment.version)
        pids = [] if board is None else [board.slot(assignment.workers.index(slot)).pid]
        boot, pid = self.machine.ledger.get((slot.node, slot.port), (None, 0))
        if boot is not None and boot.assignment == assignment:
            pids.append(pid)
        return [self.machine.processes[pid] for pid in pids if self.machine.lives(pid)]

    # ---- what is done ----

    def _carry_out(self, steps: list[NimbusInstruction]) -> None:
        """The store in one transaction, then everybody who is to hear of it."""
        self._tear(steps)
        self._store_all([step for step in steps if isinstance(step, StoreChange)])
        self._tear(steps)
        for step in steps:
            self._tell(step)
            self._tear(steps)

    def _tear(self, steps: list[NimbusInstruction]) -> None:
        if self.tears and steps and self.machine.rng.random() < _DIES:
            raise Died

    def _make_board(self, assignment: Assignment) -> None:
        self._files.make_board(assignment)

    def _store_all(self, changes: list[StoreChange]) -> None:
        if not changes:
            return
        rng, store = self.machine.rng, self._store
        assert store is not None
        dies = self.tears and rng.random() < _DIES_INSIDE
        self._dies_in = rng.randrange(_MOST_STEPS) if dies else None
        self._before = _content(store) if dies else None
        store_all(store, changes)
        self._before = None

    def _tell(self, step: NimbusInstruction) -> None:
        match step:
            case SendAssignNode(node):
                if node in self.connected:
                    wanted, nonce, supervisor = self.nimbus.assign_node(node), self.next_nonce(), self.nodes[node]
                    self.machine.send(self, supervisor, lambda: supervisor.order(wanted, nonce))
            case RemoveBoard(topology_id, version):
                self._files.remove_board(topology_id, version)
            case EndWorker(assignment, slot):
                for process in self.known(assignment, slot):
                    process.end(signal.SIGKILL)

    def check_store(self) -> None:
        """What is on disk is what it knows."""
        store = self._store
        assert store is not None
        stored = _content(store)
        known = {record.id: (record, assignment) for record, assignment in self.nimbus.assigned()}
        for one in stored.keys() | known.keys():
            if stored.get(one) != known.get(one):
                raise InvariantBrokenError(STORE_DIFFERS, f"{one}: {stored.get(one)}, known: {known.get(one)}")

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
        if self._store is not None:
            with contextlib.suppress(StoreError):  # it is locked
                self._store.limit_growth(fault == FULL)

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


def _content(store: SimulatedStore) -> Content:
    store.read_again()
    return {row.record.id: (row.record, row.assignment) for row in store.topologies()}
