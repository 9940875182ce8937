"""One machine of the simulated cluster: time, messages, a run directory in memory, and the processes that run.

Guarantees: what happens depends on the seed alone; everything that happens is in the trace, whose hash is the same when
a seed is run again. What is on disk outlives every process; the boards there are the product's, and so is the lease
by which a worker lives. `close` removes the directory; what a killed simulation leaves, the next machine removes.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING

from squall.ipc.board import READY, Board, BoardMissing
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import Assignment, TopologyRecord, WorkerBoot
from squall.scheduler.supervisor.instruction import SetBoard
from squall.scheduler.worker.self_watch import Lease, LeaseEnded

if TYPE_CHECKING:
    from tests.sim.cluster_life import LifeParts

LEASE_SECS = 1.0
_BEGIN_LOOK_SECS = 0.02
_LATENCY_SECS = (0.0005, 0.02)
_IN_MEMORY, _PREFIX = Path("/dev/shm"), "squall-sim-"


def _directory() -> str:
    """Make a directory in memory, and remove those of simulations that were killed."""
    parent = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    for path in parent.glob(f"{_PREFIX}*-*"):
        if not Path("/proc", path.name.split("-")[2]).exists():
            shutil.rmtree(path, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent)


class Actor:
    """A process that takes messages while it lives, in the order in which each sender sent them."""

    def __init__(self) -> None:
        self.up = False
        self.epoch = 0
        """Counts its lives: what was sent to one of them is lost to the next."""
        self.stopped_until = 0.0
        """By SIGSTOP: what comes meanwhile waits."""


class Machine:
    """Clock, network, disk, processes. Close it at the end."""

    def __init__(self, seed: int, parts: LifeParts) -> None:
        self.rng = random.Random(seed)
        self.parts = parts
        self.now = 100.0
        self.run_dir = RunDir(_directory())
        self.run_dir.boards.mkdir()
        self._boards: dict[Path, Board] = {}
        """Mapped, by path."""
        self._replaced: list[Board] = []
        """Those whose file was made anew."""
        self.ledger: dict[tuple[str, int], tuple[WorkerBoot, int]] = {}
        self.processes: dict[int, Process] = {}
        """Those that live."""
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._arrives: dict[tuple[Hashable, Actor], float] = {}
        self._next_pid = 1000
        self._trace = hashlib.blake2b(digest_size=16)
        self.lines: list[str] = []
        """The trace, for people."""

    def close(self) -> None:
        for board in (*self._boards.values(), *self._replaced):
            with contextlib.suppress(BufferError):  # a worker that was killed still looks at it
                board.close()
        shutil.rmtree(self.run_dir.path)

    # ---- time ----

    def at(self, at_secs: float, do: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._due, (max(at_secs, self.now), self._order, do))

    def after(self, secs: float, do: Callable[[], None]) -> None:
        self.at(self.now + secs, do)

    def run_until(self, end: float, check: Callable[[], None]) -> None:
        """Let everything happen that is due until `end`; `check` after each."""
        while self._due and self._due[0][0] <= end:
            self.now, _, do = heapq.heappop(self._due)
            do()
            check()
        self.now = end

    def note(self, text: str) -> None:
        """Enter something in the trace."""
        line = f"{self.now:.6f} {text}"
        self._trace.update(line.encode())
        self.lines.append(line)

    @property
    def digest(self) -> str:
        return self._trace.hexdigest()

    # ---- boards ----

    def board(self, topology_id: str, version: int) -> Board | None:
        """The board of an assignment, if it is there."""
        path = self.run_dir.board(topology_id, version)
        found = self._boards.get(path)
        if found is not None and found.is_there:
            return found
        try:
            self._boards[path] = Board.attach(path)
        except BoardMissing:
            return None
        if found is not None:
            self._replaced.append(found)
        return self._boards[path]

    def board_says(self, step: SetBoard) -> None:
        """A supervisor has written a slot's row."""

    def is_at_rest(self, record: TopologyRecord, assignment: Assignment) -> bool:
        """Whether nothing of it is under way any more; here it takes some time, while all its workers live."""
        board = self.board(record.id, assignment.version)
        if board is None or self.rng.random() >= 0.2:
            return False
        rows = map(board.slot, range(board.n_slots))
        return all(row.state == READY and self.lives(row.pid) for row in rows)

    # ---- messages ----

    def send(self, source: Hashable, target: Actor, do: Callable[[], None]) -> None:
        """`do` happens at the target, some time later, if it is in the same life by then. What a source sends to one
        target arrives in order."""
        link = source, target
        arrives = max(self.now + self.rng.uniform(*_LATENCY_SECS), self._arrives.get(link, 0.0))
        self._arrives[link] = arrives
        self._order += 1
        order, epoch = self._order, target.epoch

        def arrive() -> None:
            if not target.up or target.epoch != epoch:
                return
            if target.stopped_until > self.now:
                # Under its first number: if the target is stopped for longer, nothing that is younger passes it.
                heapq.heappush(self._due, (target.stopped_until, order, arrive))
                return
            do()

        heapq.heappush(self._due, (arrives, order, arrive))

    # ---- processes ----

    def fork(self, boot: WorkerBoot) -> Process:
        self._next_pid += 1
        process = self.parts.process(self, self._next_pid, boot)
        self.processes[process.pid] = process
        self.note(f"fork {process}")
        return process

    def lives(self, pid: int) -> bool:
        return pid in self.processes


class Process:
    """A worker's process: what it does by itself is to become ready, to end when it is told to, and to look after its
    lease."""

    def __init__(self, machine: Machine, pid: int, boot: WorkerBoot) -> None:
        self._machine = machine
        self.pid = pid
        self.boot = boot
        self._lease: Lease | None = None
        """From when it has found its board."""
        self.status = boot.topology.status
        self.is_ready = False
        self.hangs = False
        """It does nothing that it is asked for."""
        self.hears_at = 0.0
        """When the last that its supervisor has told it is there."""
        self.on_ready: Callable[[], None] = lambda: None
        self.on_end: Callable[[int], None] = lambda status: None
        """Both for the supervisor that there is by then."""
        machine.after(machine.rng.uniform(0.005, 0.05), self._open)
        machine.after(machine.rng.uniform(0.5, LEASE_SECS), self._check_lease)

    def __str__(self) -> str:
        boot = self.boot
        where = f"{boot.node}:{boot.port}"
        return f"{self.pid} {boot.topology.id}.{boot.assignment.version}[{boot.slot_index}]#{boot.incarnation} {where}"

    @property
    def lives(self) -> bool:
        return self._machine.lives(self.pid)

    def _open(self) -> None:
        if not self.lives or self.hangs:
            return
        if not self.may_live or self._lease is None:
            # It finds no board, or a later incarnation on it.
            self.end(1 << 8)
            return
        if not self._lease.has_begun(self.pid):
            self._machine.after(_BEGIN_LOOK_SECS, self._open)
            return
        self.is_ready = True
        self.on_ready()

    def stop(self) -> None:
        """Asked to end."""
        if self.lives and not self.hangs:
            self._machine.after(self._machine.rng.uniform(0.001, 0.2), lambda: self.end(0))

    def hear_order(self, status: str) -> None:
        """Its supervisor says what the topology's status is; "": it is to end."""
        if not status:
            self.stop()
        elif self.lives and not self.hangs:
            self.status = status

    def end(self, status: int) -> None:
        if self.lives:
            del self._machine.processes[self.pid]
            self._machine.note(f"end {self} {status}")
            self.on_end(status)

    def _check_lease(self) -> None:
        """As `scheduler.worker.self_watch`, once a second."""
        if not self.lives:
            return
        if not self.hangs and not self.may_live:
            self._machine.note(f"lease {self}")
            self.end(1 << 8)
            return
        self._machine.after(LEASE_SECS, self._check_lease)

    @property
    def may_live(self) -> bool:
        """Whether it has its lease."""
        if self._lease is None:
            boot = self.boot
            board = self._machine.board(boot.topology.id, boot.assignment.version)
            if board is None:
                return False
            self._lease = self._machine.parts.lease(board, boot.slot_index, boot.incarnation)
        try:
            self._lease.check()
        except LeaseEnded:
            return False
        return True
