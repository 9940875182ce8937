"""One machine of the simulated cluster: time, messages, what is on disk, and the processes that run.

Guarantees: what happens depends on the seed alone; everything that happens is in the trace, whose hash is the same when
a seed is run again. What is on disk outlives every process.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import dataclass, field

from squall.ipc.board import DEAD, STOPPED
from squall.scheduler.common.messages import Assignment, RestartRecord, TopologyRecord, WorkerBoot
from squall.scheduler.supervisor.instruction import SetBoard

LEASE_SECS = 1.0
_BEGIN_LOOK_SECS = 0.02
_LATENCY_SECS = (0.0005, 0.02)


@dataclass
class Cell:
    """A slot's cell on a status board."""

    incarnation: int = 0
    state: int = 0
    pid: int = 0


@dataclass
class Stored:
    """One topology in the store."""

    record: TopologyRecord
    assignment: Assignment | None = None
    restarts: dict[tuple[str, int], RestartRecord] = field(default_factory=dict)
    kill_wait_secs: float = 0.0


class Actor:
    """A process that takes messages while it lives, in the order in which each sender sent them."""

    def __init__(self) -> None:
        self.up = False
        self.epoch = 0
        """Counts its lives: what was sent to one of them is lost to the next."""
        self.stopped_until = 0.0
        """By SIGSTOP: what comes meanwhile waits."""


class Machine:
    """Clock, network, disk, processes."""

    def __init__(self, seed: int, process: type[Process] | None = None) -> None:
        self.rng = random.Random(seed)
        self._process = process or Process
        self.now = 100.0
        self.boards: MutableMapping[tuple[str, int], list[Cell]] = {}
        self.store: dict[str, Stored] = {}
        self.deleted: set[str] = set()
        self.number = 1
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

    def board_says(self, step: SetBoard) -> None:
        """A supervisor has written a slot's cell."""

    # ---- messages ----

    def send(self, source: Hashable, target: Actor, do: Callable[[], None]) -> None:
        """`do` happens at the target, some time later, if it is in the same life by then. What a source sends to one
        target arrives in order."""
        link = source, target
        arrives = max(self.now + self.rng.uniform(*_LATENCY_SECS), self._arrives.get(link, 0.0))
        self._arrives[link] = arrives
        epoch = target.epoch

        def arrive() -> None:
            if not target.up or target.epoch != epoch:
                return
            if target.stopped_until > self.now:
                self.at(target.stopped_until, arrive)
                return
            do()

        self.at(arrives, arrive)

    # ---- processes ----

    def fork(self, boot: WorkerBoot) -> Process:
        self._next_pid += 1
        process = self._process(self, self._next_pid, boot)
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
        if not self.may_live:
            # It finds no board, or a later incarnation on it.
            self.end(1 << 8)
            return
        if not self.has_begun:
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
        """As `scheduler.worker.lease`, once a second."""
        if not self.lives:
            return
        if not self.hangs and not self.may_live:
            self._machine.note(f"lease {self}")
            self.end(1 << 8)
            return
        self._machine.after(LEASE_SECS, self._check_lease)

    @property
    def has_begun(self) -> bool:
        """Whether its supervisor knows it, by the board."""
        boot = self.boot
        cells = self._machine.boards.get((boot.topology.id, boot.assignment.version))
        if cells is None:
            return False
        cell = cells[boot.slot_index]
        return (cell.incarnation, cell.pid) == (boot.incarnation, self.pid)

    @property
    def may_live(self) -> bool:
        """Whether it has its lease: its board is there, and names no later incarnation."""
        boot = self.boot
        cells = self._machine.boards.get((boot.topology.id, boot.assignment.version))
        if cells is None:
            return False
        cell = cells[boot.slot_index]
        if cell.incarnation == boot.incarnation:
            return cell.state not in (DEAD, STOPPED)
        return cell.incarnation < boot.incarnation


