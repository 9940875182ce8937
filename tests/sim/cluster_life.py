"""A cluster's life in the simulation: clients ask, daemons and workers die, everything is mended and must come to rest.

What must hold, at every moment: a slot has one living worker, a topology has workers of one version of its assignment,
no worker of its successor lives beside them, no worker's name is used twice. What was answered is not lost. At the end:
every topology that was not killed runs, on as many workers as there are slots for, and nothing else does.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from squall.engine.errors import SquallError, UsageError
from squall.scheduler.common.messages import (
    ComponentSummary,
    KillTopology,
    RebalanceTopology,
    SubmitTopology,
    TopologyRecord,
)
from squall.scheduler.nimbus.decisions import Nimbus
from squall.scheduler.worker.self_watch import Lease
from tests.sim.invariants import (
    FORGOTTEN,
    NAME_TWICE,
    NOT_RUNNING,
    STRAY,
    TWO_LIVE,
    TWO_OF_A_NAME,
    TWO_VERSIONS,
    InvariantBrokenError,
    shortened,
)
from tests.sim.machine import LEASE_SECS, Machine, Process
from tests.sim.nimbus_daemon import FULL, LOCKED, NimbusDaemon, SimulatedStore
from tests.sim.supervisor_daemon import SupervisorDaemon

NAMES = ("one", "two", "three")
LIFE_SECS, HEAL_SECS = 20.0, 90.0
COMPONENTS = [ComponentSummary("lines", "spout", 2, 2), ComponentSummary("count", "bolt", 4, 4)]


@dataclass(frozen=True)
class LifeParts:
    """What a cluster is made of; controls put something wrong in."""

    decisions: type[Nimbus] = Nimbus
    nimbus: type[NimbusDaemon] = NimbusDaemon
    supervisor: type[SupervisorDaemon] = SupervisorDaemon
    process: type[Process] = Process
    lease: type[Lease] = Lease
    store: type[SimulatedStore] = SimulatedStore
    faults: tuple[str, ...] = ()
    """The only ones that happen; with none, all do."""

    @property
    def life(self) -> type[ClusterLife]:
        """What lives are made of these parts."""
        return ClusterLife


THE_PRODUCT = LifeParts()


def broken_by(seed: int, parts: LifeParts = THE_PRODUCT, without: Collection[int] = ()) -> InvariantBrokenError | None:
    """What is wrong with one life; None if nothing is."""
    life = parts.life(seed, parts, without)
    try:
        life.run()
    except InvariantBrokenError as error:
        error.steps, error.lines = life.steps, life.machine.lines
        return error
    return None


def shortest(seed: int, parts: LifeParts = THE_PRODUCT) -> InvariantBrokenError | None:
    """The same invariant broken by as few requests and faults as leaving out one after the other leads to."""
    found = broken_by(seed, parts)
    if found is None:
        return None
    every = tuple(range(1, found.steps + 1))

    def again(kept: tuple[int, ...]) -> InvariantBrokenError | None:
        return broken_by(seed, parts, set(every).difference(kept))

    return again(shortened(every, again, found.invariant))


def first_broken(seeds: Iterable[int], parts: LifeParts) -> tuple[int, str] | None:
    """The first of these seeds whose life breaks an invariant."""
    for seed in seeds:
        broken = broken_by(seed, parts)
        if broken is not None:
            return seed, str(broken)
    return None


class ClusterLife:
    """One seeded life."""

    names: Sequence[str] = NAMES
    life_secs = LIFE_SECS
    port_counts: Sequence[int] = (1, 2, 3)
    worker_counts: Sequence[int] = (1, 2, 4)
    request_rate = 1.5
    """How many of them clients make in a second."""
    fault_rates: Sequence[float] = (0.3, 1.0, 3.0)
    faults: Sequence[str] = (
        "worker", "worker", "nimbus", "supervisor", "node", "parent", "leave", "stop", "hang", "refuse", "store",
    )

    def __init__(self, seed: int, parts: LifeParts = THE_PRODUCT, without: Collection[int] = ()) -> None:
        """`without`: numbers of requests and faults, as the trace has them, that are left out."""
        self._without = without
        self.steps = 0
        """Requests and faults so far, those that were left out as well."""
        self.machine = machine = self._new_machine(seed, parts)
        self.rng = machine.rng
        self.nimbus = parts.nimbus(machine, parts.decisions)
        ports = [6700 + n for n in range(self.rng.choice(self.port_counts))]
        count = self.rng.choice((1, 2, 3))
        self.nodes = [parts.supervisor(machine, self.nimbus, f"node-{n + 1}", ports) for n in range(count)]
        for node in self.nodes:
            node.fell = partial(self._later, node)
        self.told: dict[str, str | None] = {}
        """Name -> status that clients were told; None: nobody knows, the answer did not come."""
        self._promised: dict[str, str | None] = {}
        """Name -> id of the topology that was accepted last under it, or in the place of another; None as in `told`."""
        self._names: set[str] = set()
        self._seen: set[int] = set()
        self._fenced_at: dict[int, float] = {}
        self._rate = self.rng.choice(self.fault_rates)
        self.faults = parts.faults or self.faults

    def run(self) -> str:
        """The hash of all that happened. Raises InvariantBrokenError."""
        try:
            self._live()
        finally:
            self.nimbus.let_go()
            self.machine.close()
        return self.machine.digest

    def _live(self) -> None:
        machine = self.machine
        self.nimbus.start()
        for node in self.nodes:
            node.start()
        self._begin(machine.now + self.life_secs)
        machine.run_until(machine.now + self.life_secs, self._check)
        self._heal()
        self._come_to_rest()

    def _new_machine(self, seed: int, parts: LifeParts) -> Machine:
        return Machine(seed, parts)

    def _come_to_rest(self) -> None:
        self.machine.run_until(self.machine.now + HEAL_SECS, self._check)
        self._check_end()

    def _takes_step(self) -> bool:
        self.steps += 1
        return self.steps not in self._without

    # ---- what clients do ----

    def _begin(self, until: float) -> None:
        self._again(self._ask, until, (0.0, 2.0), self.request_rate)
        self._again(self._break, until, (0.5, 3.0), self._rate)

    def _again(self, do: Callable[[], None], until: float, first: tuple[float, float], rate: float) -> None:
        def step() -> None:
            if self.machine.now < until:
                if self._takes_step():
                    do()
                self.machine.after(self.rng.expovariate(rate), step)

        self.machine.after(self.rng.uniform(*first), step)

    def _ask(self, what: str = "", name: str = "") -> None:
        nimbus, rng, name = self.nimbus, self.rng, name or self.rng.choice(self.names)
        if not nimbus.up or nimbus.stopped_until > self.machine.now:
            return
        now, workers = self.machine.now, rng.choice(self.worker_counts)
        submit = self._submission(name, workers)
        wait_secs = rng.choice((0.0, 1.0, 5.0))
        number = rng.getrandbits(32)
        token = f"{number:08x}"
        # By a draw that was made in any case: all else in a seed's life stays as it was.
        submit = replace(submit, replace=number % 3 == 0, replace_wait_secs=wait_secs)
        requests: dict[str, Callable[[Nimbus], tuple[TopologyRecord, Any]]] = {
            "ACTIVE": lambda decisions: decisions.submit(submit, now, 0.0, token),
            "KILLED": lambda decisions: decisions.kill(KillTopology(name, wait_secs), now),
            "rebalance": lambda decisions: decisions.rebalance(RebalanceTopology(name, workers, {}, wait_secs), now),
            "activate": lambda decisions: decisions.set_status(name, "ACTIVE"),
            "INACTIVE": lambda decisions: decisions.set_status(name, "INACTIVE"),
            "reset": lambda decisions: decisions.reset(name, now),
        }
        what = what or rng.choice(("ACTIVE", *requests))
        before = self.told.get(name, "")
        told: list[str] = []

        def decide() -> Any:
            record, steps = requests[what](nimbus.nimbus)
            told.append(record.id)
            return steps

        try:
            done = nimbus.do(decide)
        except UsageError:
            return
        except SquallError as error:
            raise InvariantBrokenError(FORGOTTEN, str(error)) from error
        instead = " instead" if what == "ACTIVE" and submit.replace else ""
        self.machine.note(f"({self.steps}) {what}{instead} {name}: {'answered' if done else 'no answer'}")
        if not done or what == "ACTIVE":
            self._promised[name] = told[0] if done else None
        if not done:
            self.told[name] = None
        elif what in ("ACTIVE", "KILLED"):
            self.told[name] = what
        elif before == "KILLED":
            # It was gone by then, and is there again only if somebody has submitted it without hearing so.
            self.told[name] = None

    def _submission(self, name: str, workers: int) -> SubmitTopology:
        conf = {"workers": workers, "message_timeout_secs": 5.0}
        return SubmitTopology(name, conf, COMPONENTS, "ab" * 32, [])

    # ---- what breaks ----

    def _break(self) -> None:
        node, fault = self.rng.choice(self.nodes), self.rng.choice(self.faults)
        self.machine.note(f"({self.steps}) fault: {fault}, {node.node}")
        self._inject(fault, node)
        if not self.nimbus.up:
            # It may have died of what it carried out.
            self._later(self.nimbus)

    def _inject(self, fault: str, node: SupervisorDaemon) -> None:
        machine, rng = self.machine, self.rng
        workers = list(machine.processes.values())
        if fault == "worker" and workers:
            rng.choice(workers).end(signal.SIGKILL)
        elif fault == "hang" and workers:
            rng.choice(workers).hangs = True
        elif fault == "nimbus" and self.nimbus.up:
            self.nimbus.kill()
            self._later(self.nimbus)
        elif fault in ("supervisor", "node") and node.up:
            node.kill()
            if fault == "node":
                for process in [each for each in workers if each.boot.node == node.node]:
                    process.end(signal.SIGKILL)
            self._later(node)
        elif fault == "parent" and node.up:
            node.kill_parent()
        elif fault == "leave" and node.up:
            node.leave(rng.choice((1.0, 5.0, 30.0)))
        elif fault == "stop":
            victim = rng.choice((node, self.nimbus))
            # Never sooner than an earlier stop: what waits for that one's end would be overtaken.
            victim.stopped_until = max(victim.stopped_until, machine.now + rng.choice((0.5, 3.0, 8.0)))
            machine.note(f"stop {type(victim).__name__}")
        elif fault == "refuse":
            node.refuses = rng.choice((0.0, 0.5))
        elif fault == "store":
            self.nimbus.break_store(rng.choice((LOCKED, FULL, "")))

    def _later(self, daemon: NimbusDaemon | SupervisorDaemon) -> None:
        epoch = daemon.epoch
        self.machine.after(self.rng.choice((0.05, 0.3, 2.0, 7.0)), lambda: self._start(daemon, epoch))

    def _start(self, daemon: NimbusDaemon | SupervisorDaemon, epoch: int) -> None:
        lost = isinstance(daemon, SupervisorDaemon) and daemon not in self.nodes
        if not daemon.up and daemon.epoch == epoch and not lost:
            daemon.start()

    def _heal(self) -> None:
        """Break nothing any more; who hangs is found out, as by its heartbeat, and who is stopped goes on."""
        self.nimbus.break_store("")
        for each in (self.nimbus, *self.nodes):
            each.tears = False
        if len(self.nodes) > 1 and self.rng.random() < 0.3:
            self._lose(self.rng.choice(self.nodes))
        for daemon in (self.nimbus, *self.nodes):
            if not daemon.up:
                daemon.start()
        for node in self.nodes:
            node.refuses = 0.0
        for process in [process for process in self.machine.processes.values() if process.hangs]:
            process.end(signal.SIGKILL)
        # What was given up under all this is tried again, as an operator would have it.
        for name in self.names:
            self.nimbus.do(lambda name=name: self._reset(name))  # type: ignore[misc]

    def _lose(self, node: SupervisorDaemon) -> None:
        """A node dies for good; the others have to do without it."""
        self.nodes.remove(node)
        if node.up:
            node.kill()
        for process in [each for each in self.machine.processes.values() if each.boot.node == node.node]:
            process.end(signal.SIGKILL)

    def _reset(self, name: str) -> Any:
        try:
            return self.nimbus.nimbus.reset(name, self.machine.now)[1]
        except UsageError:
            return []

    # ---- what must hold ----

    def _check(self) -> None:
        slots: dict[tuple[str, int], int] = {}
        versions: dict[str, int] = {}
        names: dict[str, str] = {}
        for process in self.machine.processes.values():
            if not process.is_ready:
                continue
            self._check_name(process)
            boot = process.boot
            # Whether or not others listen to it: it writes to the state that is its successor's, too.
            if names.setdefault(boot.topology.name, boot.topology.id) != boot.topology.id:
                self._broken(TWO_OF_A_NAME, f"{process}, beside {names[boot.topology.name]}")
            if self._is_fenced(process):
                continue
            where = boot.node, boot.port
            if slots.setdefault(where, process.pid) != process.pid:
                self._broken(TWO_LIVE, f"{process}, beside {slots[where]}")
            if versions.setdefault(boot.topology.id, boot.assignment.version) != boot.assignment.version:
                self._broken(TWO_VERSIONS, f"{process}, beside version {versions[boot.topology.id]}")

    def _check_name(self, process: Process) -> None:
        if process.pid in self._seen:
            return
        self._seen.add(process.pid)
        boot = process.boot
        name = boot.sender
        if name in self._names:
            self._broken(NAME_TWICE, str(process))
        self._names.add(name)

    def _is_fenced(self, process: Process) -> bool:
        """Nobody listens to it, by the board, and it ends when it looks at its lease."""
        if process.may_live:
            self._fenced_at.pop(process.pid, None)
            return False
        since = self._fenced_at.setdefault(process.pid, self.machine.now)
        if self.machine.now > since + LEASE_SECS and not process.hangs:
            self._broken(STRAY, f"{process} has had no lease for more than {LEASE_SECS:g} s")
        return True

    def _check_end(self) -> None:
        nimbus = self.nimbus.nimbus
        there = {record.name: record for record in nimbus.cluster().topologies}
        self._check_told(there)
        wanted: set[int] = set()
        for name, record in there.items():
            assignment = nimbus.topology(name).assignment
            if assignment is None or record.status not in ("ACTIVE", "INACTIVE"):
                if nimbus.cluster().free_slots or record.status == "KILLED":
                    self._broken(NOT_RUNNING, f"{name} is {record.status}, assignment {assignment}")
                continue
            board = self.machine.board(record.id, assignment.version)
            assert board is not None
            for index, slot in enumerate(assignment.workers):
                row = board.slot(index)
                process = self.machine.processes.get(row.pid)
                if process is None or not process.is_ready:
                    self._broken(NOT_RUNNING, f"{name} has no worker in {slot}: {row}")
                elif process.status != record.status:
                    self._broken(NOT_RUNNING, f"{process} is {process.status}, {name} is {record.status}")
                wanted.add(row.pid)
        for process in self.machine.processes.values():
            if process.pid not in wanted:
                self._broken(STRAY, str(process))
        self.nimbus.check_store()

    def _check_told(self, there: dict[str, TopologyRecord]) -> None:
        for name, status in self.told.items():
            if status == "ACTIVE" and name not in there:
                self._broken(FORGOTTEN, f"{name} was accepted and is not there")
            if status == "KILLED" and name in there:
                self._broken(FORGOTTEN, f"{name} was killed and is {there[name].status}")
            promised = self._promised.get(name)
            if status == "ACTIVE" and promised is not None and there[name].id != promised:
                self._broken(FORGOTTEN, f"{promised} was accepted, and {there[name].id} is there")

    def _broken(self, invariant: str, what: str) -> None:
        raise InvariantBrokenError(invariant, what)
