"""Injects faults into a worker: into its start, its links, its tasks, its wall clock.

Guarantees
    * Without faults this costs a look for a file that is not there when it starts, then one comparison of two integers
      in a look that is made every few milliseconds.
    * Each fault ends at its time, even if every daemon is dead.
    * A fault that may kill the worker is on record before it happens.

Relies on: Nimbus counting on the board how often it has written the file (`ipc.board.HEADER_FAULTS`).

Thread: the worker's loop. A `Before` is called by the task's own thread, if it has one.
"""

from __future__ import annotations

import ctypes
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from squall.engine.api.tuple import Tuple
from squall.engine.core.hook_calls import Before, tamper
from squall.engine.core.worker_core import WorkerCore
from squall.engine.errors import ClusterError
from squall.engine.foreign.text import plain
from squall.ipc.board import HEADER_FAULTS, Board
from squall.ipc.data_plane import DataPlane
from squall.ipc.rundir import RunDir
from squall.ipc.shim import DROP, NEVER, LinkRule
from squall.scheduler.common.messages import WorkerBoot
from squall.scheduler.faults.catalogue import ALL_FRAMES, AT_START, CLOCK
from squall.scheduler.faults.in_force import HIT, FaultInForce, note, read_faults

_HANG_LOOK_SECS = 0.005
_TIME, _TIME_NS = time.time, time.time_ns


class InjectedFault(Exception):
    """The error that a task raises because of a fault."""


class WorkerFaults:
    """The faults of one worker."""

    def __init__(self, run_dir: RunDir, boot: WorkerBoot, board: Board, tell: Callable[[str], None]) -> None:
        """`tell` writes a line to the worker's log."""
        self._tell = tell
        self._run_dir = run_dir
        self._boot = boot
        self._me = f"{boot.node}:{boot.port}"
        self._peers = [str(slot) for slot in boot.assignment.workers]
        executors = boot.assignment.executors[boot.slot_index]
        self._tasks = {task for each in executors for task in each.tasks}
        self._words = board.words
        self._plane: DataPlane
        self._core: WorkerCore
        self._loop = threading.get_ident()
        self._seen = -1
        self._known: list[FaultInForce] = []
        """The faults in the file that concern this worker."""
        self._active: dict[int, FaultInForce] = {}
        self._tampered: set[int] = set()
        self._noted: set[int] = set()
        """Ids of the faults that are on record as able to kill this worker."""
        self._read()
        self._set_clock(fault for fault in self._known if fault.is_in_force(time.monotonic()))

    # ---- the start ----

    def spoils_code(self) -> bool:
        """Return True if the worker is to be given half of its code."""
        for fault in self._of_start("load"):
            self._note_hit(fault)
            return True
        return False

    def opening(self, task: int) -> None:
        """Called as if it were the first line of a task's `open` or `prepare`."""
        for fault in self._of_start("prepare"):
            if task in fault.tasks:
                self._note_hit(fault)
                raise _error(fault)

    def _of_start(self, fails: str) -> Iterator[FaultInForce]:
        now = time.monotonic()
        for fault in self._known:
            if fault.kind == AT_START and fault.params["fails"] == fails and fault.is_in_force(now):
                yield fault

    # ---- what is in force ----

    def begin(self, plane: DataPlane, core: WorkerCore) -> None:
        """The worker's parts are there: carry out what is in force."""
        self._plane, self._core = plane, core
        self._follow(time.monotonic())

    def look(self) -> None:
        """Begin and end faults, as the file or the clock says."""
        if self._words[HEADER_FAULTS] != self._seen:
            self._read()
            self._follow(time.monotonic())
        elif self._active:
            now = time.monotonic()
            if any(now >= fault.ends_secs for fault in self._active.values()):
                self._follow(now)
            self._plane.send_due()

    @property
    def is_active(self) -> bool:
        """Whether a fault is in force, whose end has to be looked for."""
        return bool(self._active)

    def _read(self) -> None:
        # Read the word first: if the file is written meanwhile, it is read again.
        seen = self._words[HEADER_FAULTS]
        try:
            faults = read_faults(self._run_dir)
        except ClusterError as error:
            self._tell(f"{self._me}: {plain(error)}")
        else:
            self._known = [fault for fault in faults if self._concerns(fault)]
        self._seen = seen

    def _concerns(self, fault: FaultInForce) -> bool:
        if fault.topology_id:
            return fault.topology_id == self._boot.topology.id and not self._tasks.isdisjoint(fault.tasks)
        return any(fault.breaks(self._me, peer) for peer in self._peers)

    def _follow(self, now: float) -> None:
        """Carry out exactly the faults that are in force."""
        before = self._active.keys()
        self._active = {
            fault.id: fault for fault in self._known if fault.kind != AT_START and fault.is_in_force(now)
        }
        if self._active.keys() != before:
            self._break_links()
            self._tamper()
            self._set_clock(self._active.values())

    def _set_clock(self, faults: Iterable[FaultInForce]) -> None:
        """Set the wall clock of this process as these faults say: for whoever looks up `time.time` when calling it."""
        secs = sum(fault.params["secs"] for fault in faults if fault.kind == CLOCK)
        ahead_ns = round(secs * 1e9)
        time.time = (lambda: _TIME() + secs) if secs else _TIME
        time.time_ns = (lambda: _TIME_NS() + ahead_ns) if secs else _TIME_NS

    # ---- links ----

    def _break_links(self) -> None:
        rules = []
        seed = 0
        for fault in self._active.values():
            for slot, peer in enumerate(self._peers):
                if peer != self._me and fault.breaks(self._me, peer):
                    rules.append(_rule(fault, slot))
                    seed ^= fault.seed
        self._plane.break_links(rules, seed * 1009 + self._boot.slot_index)

    # ---- tasks ----

    def _tamper(self) -> None:
        faults = [fault for fault in self._active.values() if fault.kind != CLOCK]
        tasks = {task for fault in faults for task in fault.tasks} & self._tasks
        for task in tasks | self._tampered:
            hits = [fault for fault in faults if task in fault.tasks]
            tamper(self._core, task, self._before(task, hits) if hits else None)
        self._tampered = tasks

    def _before(self, task: int, faults: list[FaultInForce]) -> Before:
        hits = [(fault, _hits(fault, f"{fault.seed} {task} {self._boot.incarnation}")) for fault in faults]

        def before(tup: Tuple | None) -> None:
            for fault, is_hit in hits:
                if is_hit(tup) and self._is_on(fault):
                    self._harm(fault)

        return before

    def _harm(self, fault: FaultInForce) -> None:
        deed = fault.params.get("does", fault.kind)
        if deed == "slow":
            time.sleep(float(fault.params["ms"]) / 1000)
            return
        self._note_hit(fault)
        match deed:
            case "exception":
                raise _error(fault)
            case "hang":
                self._hang(fault)
            case "exit":
                os._exit(0)
            case "segfault":
                ctypes.string_at(0)
            case _:
                raise ClusterError(f"fault {fault.id} shall do {deed!r}, which this worker does not know")

    def _is_on(self, fault: FaultInForce) -> bool:
        """Whether the fault is still in force: one slice of a batch may outlast it."""
        return fault.id in self._active and time.monotonic() < fault.ends_secs

    def _hang(self, fault: FaultInForce) -> None:
        while self._is_on(fault):
            time.sleep(_HANG_LOOK_SECS)
            if threading.get_ident() == self._loop:
                # The loop itself hangs here, so nothing else would notice that the fault is healed.
                self.look()

    def _note_hit(self, fault: FaultInForce) -> None:
        """Put a fault on record, once: it may raise for every tuple."""
        if fault.id in self._noted:
            return
        self._noted.add(fault.id)
        try:
            note(
                self._run_dir, HIT, fault, time.monotonic(), name=self._me, pid=os.getpid(),
                incarnation=self._boot.incarnation,
            )
        except OSError as error:
            # Say so in the log: otherwise the death would have no explanation.
            self._tell(f"{self._me}: fault {fault.id} is not on record: {plain(error)}")


def _rule(fault: FaultInForce, receiver: int) -> LinkRule:
    """The rule by which a fault breaks the frames to one peer."""
    params = fault.params
    action = DROP if fault.kind == "partition" else str(params.get("how", fault.kind))
    chance = 1.0 if fault.probability is None else fault.probability
    frames = None if params["frames"] == ALL_FRAMES else str(params["frames"])
    if params.get("ms"):
        return LinkRule(action, chance, frames, receiver, NEVER, round(params["ms"] * 1e6))
    return LinkRule(action, chance, frames, receiver, params.get("by", 0))


def _error(fault: FaultInForce) -> InjectedFault:
    return InjectedFault(f"fault {fault.id} of kind {fault.kind}")


def _hits(fault: FaultInForce, seed: str) -> Callable[[Tuple | None], bool]:
    """A test for the calls that a fault hits: those with a tuple that it poisons, or those that it draws."""
    params, rng = fault.params, random.Random(seed)
    if fault.kind != "poison":
        chance = 1.0 if fault.probability is None else fault.probability
        return lambda _: rng.random() < chance
    name, pattern = str(params["field"]), re.compile(str(params["matches"])) if "matches" in params else None

    def is_poison(tup: Tuple | None) -> bool:
        if tup is None or name not in tup.fields:
            return False
        value = tup[name]
        if pattern is not None:
            return isinstance(value, str) and pattern.search(value) is not None
        # Compare plain values only: `__str__` of users' objects could do anything.
        return type(value) in (int, float, str, bool) and str(value) == params["equals"]

    return is_poison
