"""The machine of a joined life: the one of `tests.sim.machine`, with a directory in memory, status boards and wires.

Guarantees: the same seed does the same, down to each byte on the wires, which is in the hash of the trace. `close`
removes the directory; what a killed process leaves, the next machine removes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from squall.engine.clock import NS_PER_SEC
from squall.ipc.board import DEAD, STOPPED, Board, BoardMissing
from squall.ipc.rundir import RunDir
from squall.ipc.shim import LinkRule
from squall.scheduler.common.messages import TopologyRecord, WorkerBoot
from squall.scheduler.common.process import lives, start_time_ticks
from squall.scheduler.supervisor.instruction import SetBoard
from tests.sim.book import Book, Lines
from tests.sim.machine import Cell, Machine, Process
from tests.sim.parts import Parts
from tests.sim.stored_nimbus import SimulatedStore
from tests.sim.wire import Message, Wire
from tests.sim.worker_process import WorkerProcess

_IN_MEMORY, _PREFIX = "/dev/shm", "squall-sim-"
_RECORDS, _EMITS_FOR_SECS = (20, 60), (0.5, 2.0, 5.0)

Key = tuple[str, int]
"""A topology and a version of its assignment."""


@dataclass(frozen=True)
class MachineParts:
    """What runs on a machine; controls put something wrong in."""

    worker: Parts = field(default_factory=Parts)
    lines: type[Lines] = Lines
    store: type[SimulatedStore] = SimulatedStore
    process: type[WorkerProcess] = WorkerProcess


class BoardCell(Cell):
    """A slot's row of a real board, as supervisors write it."""

    def __init__(self, board: Board, index: int) -> None:
        self.board = board
        self._index = index

    def _set(self, **changed: int) -> None:
        cell = self.board.slot(self._index)._replace(**changed)
        self.board.set_slot(self._index, cell.incarnation, cell.state, cell.pid)

    @property
    def incarnation(self) -> int:  # type: ignore[override]
        return self.board.identity(self._index) >> 8

    @incarnation.setter
    def incarnation(self, incarnation: int) -> None:
        self._set(incarnation=incarnation)

    @property
    def state(self) -> int:  # type: ignore[override]
        return self.board.identity(self._index) & 0xFF

    @state.setter
    def state(self, state: int) -> None:
        self._set(state=state)

    @property
    def pid(self) -> int:  # type: ignore[override]
        return self.board.slot(self._index).pid

    @pid.setter
    def pid(self, pid: int) -> None:
        self._set(pid=pid)


class Cells(list[Cell]):
    """A mapped board, slot by slot."""

    def __init__(self, board: Board) -> None:
        super().__init__(BoardCell(board, index) for index in range(board.n_slots))
        self.board = board


class BoardFiles(MutableMapping[Key, list[Cell]]):
    """The boards of a run directory, each mapped once."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._mapped: dict[Key, Cells] = {}

    def __getitem__(self, key: Key) -> Cells:
        found = self._mapped.get(key)
        if found is None or not found.board.is_there:
            try:
                found = self._mapped[key] = Cells(Board.attach(str(self._run_dir.board(*key))))
            except BoardMissing:
                raise KeyError(key) from None
        return found

    def __setitem__(self, key: Key, cells: list[Cell]) -> None:
        raise NotImplementedError("Nimbus makes boards")

    def __delitem__(self, key: Key) -> None:
        self._run_dir.board(*key).unlink()

    def __iter__(self) -> Iterator[Key]:
        return iter([key for key in self._mapped if key in self])

    def __len__(self) -> int:
        return len(list(iter(self)))


def _directory() -> str:
    """Make a directory in memory, and remove those that simulations which were killed have left behind."""
    in_memory = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else tempfile.gettempdir()
    for path in Path(in_memory).glob(f"{_PREFIX}*-*-*"):
        pid, started_ticks = path.name.removeprefix(_PREFIX).split("-")[:2]
        if pid.isdecimal() and started_ticks.isdecimal() and not lives(int(pid), int(started_ticks)):
            shutil.rmtree(path, ignore_errors=True)
    pid = os.getpid()
    return tempfile.mkdtemp(prefix=f"{_PREFIX}{pid}-{start_time_ticks(pid)}-", dir=in_memory)


class JoinedMachine(Machine):
    """Close it at the end."""

    boards: MutableMapping[Key, list[Cell]]

    def __init__(self, seed: int, parts: MachineParts) -> None:
        super().__init__(seed)
        self.parts = parts
        self.run_dir = RunDir(_directory())
        self.run_dir.boards.mkdir()
        self.files = BoardFiles(self.run_dir)
        self.boards = self.files
        self.wire = Wire(self.rng)
        self.wire.sent = self._sent
        self.by_address: dict[str, WorkerProcess] = {}
        """Those that listen."""
        self.books: dict[str, Book] = {}
        """By topology."""
        self.may_time_out = True
        """Whether an attempt may fail by its timeout."""
        self._have_ended: set[str] = set()
        """Topologies of which a worker has ended."""
        self.rules: list[LinkRule] = []
        """How links are broken now."""
        self.in_turn = False
        """Whether the last that happened was a worker's turn."""

    def close(self) -> None:
        shutil.rmtree(self.run_dir.path)

    def fork(self, boot: WorkerBoot) -> Process:
        self._next_pid += 1
        process = self.parts.process(self, self._next_pid, boot)
        self.processes[process.pid] = process
        self.note(f"fork {process}")
        return process

    def board_says(self, step: SetBoard) -> None:
        if step.state in (DEAD, STOPPED) or step.incarnation > 1:
            # Also a worker that was never forked: peers have seen it begin, and another take its place.
            self._have_ended.add(step.topology_id)

    def new_book(self, timeout_secs: float, name: str = "") -> Book:
        return Book(self.rng.choice(_RECORDS), timeout_secs, lambda text: self.note(f"{name}: {text}"))

    def book_of(self, topology: TopologyRecord) -> Book:
        """The book of a topology, begun when its first worker is."""
        book = self.books.get(topology.id)
        if book is None:
            book = self.books[topology.id] = self.new_book(topology.conf["message_timeout_secs"], topology.name)
            book.began_ns = round(self.now * NS_PER_SEC)
            book.emits_for_secs = self.rng.choice(_EMITS_FOR_SECS)
            book.breaks = bool(self.rules)
            book.may_time_out = lambda: self.may_time_out
            book.workers_ended = lambda: topology.id in self._have_ended
        return book

    @property
    def workers(self) -> list[WorkerProcess]:
        return [process for process in self.processes.values() if isinstance(process, WorkerProcess)]

    def board(self, topology_id: str, version: int) -> Board | None:
        """The board of an assignment, if it is there."""
        cells = self.files.get((topology_id, version))
        return None if cells is None else cells.board

    def _sent(self, address: str, message: Message) -> None:
        for part in message:
            self._trace.update(part)
        listener = self.by_address.get(address)
        if listener is not None:
            listener.hear()

    def break_links(self, rules: list[LinkRule]) -> None:
        """From now on, and with no rules no longer."""
        self.rules = rules
        for book in self.books.values():
            book.breaks += bool(rules)
        for process in self.workers:
            if process.inside is not None:
                process.inside.plane.break_links(rules, self.rng.getrandbits(32))

    def open_messages(self, topology_id: str, version: int) -> int:
        """Messages that spouts wait for, by the spouts themselves."""
        found = 0
        for process in self.workers:
            boot = process.boot
            if process.inside is not None and (boot.topology.id, boot.assignment.version) == (topology_id, version):
                found += sum(len(task.pending) for _, task in process.inside.core.spout_tasks.values())
        return found

    def reported(self, component: str, task: int, text: str) -> None:
        raise AssertionError(f"{component}[{task}] reported {text}")

