"""Nimbus and supervisors of the simulated cluster: the product's decisions, and what carries them out on the machine.

`scheduler.nimbus.service`, `scheduler.supervisor.loop` and `scheduler.supervisor.dispatcher` work with sockets, files
and processes; here the same is done in few lines, in the same order. Daemons die between any two steps of it.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from squall.ipc.board import DEAD, READY, STARTING
from squall.scheduler.common.messages import (
    Assignment,
    AssignNode,
    RegisterSupervisor,
    SlotAssignment,
    SlotChanged,
    SlotRef,
    SupervisorHeartbeat,
    WorkerBoot,
    WorkerReady,
)
from squall.scheduler.nimbus.decisions import Nimbus
from squall.scheduler.nimbus.instruction import (
    CreateBoard,
    DeleteTopology,
    EndWorker,
    NimbusInstruction,
    RemoveBoard,
    RemoveUnknown,
    SendAssignNode,
    StoreAssignment,
    StoreChange,
    StoreRestart,
    StoreStatus,
    StoreTopology,
)
from squall.scheduler.nimbus.topology_life import TopologyLife
from squall.scheduler.supervisor import instruction as order
from squall.scheduler.supervisor.decisions import Order, Supervisor
from squall.scheduler.supervisor.prospects import ProspectOptions, Prospects
from squall.scheduler.supervisor.slot import Slot
from squall.scheduler.supervisor.worker_life import SlotAddress, SlotOptions
from tests.sim.machine import Actor, Cell, Machine, Process, Stored

HEARTBEAT_SECS, RECONNECT_SECS, LOOK_SECS = 1.0, 0.2, 0.1
_TEARS = 0.02
"""How likely it is that Nimbus dies in the middle of carrying out."""


class Died(Exception):
    """The daemon has been killed where it stood."""


class NimbusDaemon(Actor):
    """One Nimbus after the other."""

    def __init__(self, machine: Machine, decisions: type[Nimbus] = Nimbus) -> None:
        super().__init__()
        self.machine = machine
        self.nodes: dict[str, SupervisorDaemon] = {}
        self.connected: set[str] = set()
        """Nodes whose supervisor is registered with this life of it."""
        self.tears = True
        self._decisions = decisions

    def start(self) -> None:
        machine = self.machine
        self.up = True
        self.epoch += 1
        self.stopped_until = 0.0
        self.connected = set()
        machine.note("nimbus starts")
        lives = [
            TopologyLife(
                stored.record, stored.assignment, list(stored.restarts.values()), len(stored.restarts),
                stored.kill_wait_secs,
            )
            for stored in machine.store.values()
        ]
        # As `leftovers.tidy_boards` and `mend_boards`.
        wanted = {(life.record.id, life.version) for life in lives if life.assignment is not None}
        for key in [key for key in machine.boards if key not in wanted]:
            del machine.boards[key]
        for life in lives:
            if life.assignment is not None and (life.record.id, life.version) not in machine.boards:
                self._make_board(CreateBoard(life.record.id, len(life.slots), 1, life.version))
        self.nimbus = self._decisions(lives, machine.number, machine.now, machine.deleted)
        self._tick(self.epoch)

    def kill(self) -> None:
        self.machine.note("nimbus dies")
        self.up = False

    # ---- what comes ----

    def register(self, request: RegisterSupervisor, answer: Callable[[AssignNode], None]) -> None:
        self.connected.add(request.node)
        if self.do(lambda: self.nimbus.register_supervisor(request, self.machine.now)):
            answer(self.nimbus.assign_node(request.node))

    def hear(self, node: str) -> None:
        if node in self.connected:
            self.do(lambda: self.nimbus.heartbeat(SupervisorHeartbeat(node, self.machine.now), self.machine.now))

    def slot_changed(self, changed: SlotChanged) -> None:
        self.do(lambda: self.nimbus.slot_changed(changed, self.machine.now))

    def do(self, decide: Callable[[], Iterable[NimbusInstruction]]) -> bool:
        """Decide and carry out; False if it died of it."""
        try:
            self._carry_out(list(decide()))
        except Died:
            self.kill()
        return self.up

    def _tick(self, epoch: int) -> None:
        if not self.up or self.epoch != epoch:
            return
        machine, nimbus = self.machine, self.nimbus
        now = machine.now
        if self.stopped_until <= now:
            for record, assignment in nimbus.draining():
                if machine.rng.random() < 0.2 and self._all_live(assignment):
                    self.do(lambda record=record: nimbus.drained(record.id, now))  # type: ignore[misc]
            for record, assignment, slots in nimbus.unaccounted(now):
                named = [assignment.workers[index] for index in slots]
                living = [slot for slot in named if self.known(assignment, slot)]
                self.do(lambda r=record, n=named, a=living: nimbus.looked(r.id, n, a, now))  # type: ignore[misc]
            for record, assignment, slots in nimbus.missing(now):
                if not all(self.known(assignment, assignment.workers[index]) for index in slots):
                    self.do(lambda record=record: nimbus.lost(record.id, now))  # type: ignore[misc]
            self.do(lambda: nimbus.tick(now))
        machine.after(LOOK_SECS, lambda: self._tick(epoch))

    def _all_live(self, assignment: Assignment) -> bool:
        cells = self.machine.boards.get((assignment.topology_id, assignment.version), [])
        return bool(cells) and all(cell.state == READY and self.machine.lives(cell.pid) for cell in cells)

    def known(self, assignment: Assignment, slot: SlotRef) -> list[Process]:
        """As `living_workers`: by the board, and by the ledger of the supervisor."""
        cells = self.machine.boards.get((assignment.topology_id, assignment.version))
        pids = [] if cells is None else [cells[assignment.workers.index(slot)].pid]
        boot, pid = self.machine.ledger.get((slot.node, slot.port), (None, 0))
        if boot is not None and boot.assignment == assignment:
            pids.append(pid)
        return [self.machine.processes[pid] for pid in pids if self.machine.lives(pid)]

    # ---- what is done ----

    def _carry_out(self, steps: list[NimbusInstruction]) -> None:
        """Boards, then the store in one transaction, then everybody who is to hear of it."""
        for step in steps:
            if isinstance(step, CreateBoard):
                self._make_board(step)
        self._tear(steps)
        changes = [step for step in steps if isinstance(step, StoreChange)]
        for change in changes:
            self._store(change)
        self._tear(steps)
        for step in steps:
            self._tell(step)
            self._tear(steps)

    def _tear(self, steps: list[NimbusInstruction]) -> None:
        if self.tears and steps and self.machine.rng.random() < _TEARS:
            raise Died

    def _make_board(self, step: CreateBoard) -> None:
        former = self.machine.boards.get((step.topology_id, step.version - 1), [])
        first = max((cell.incarnation for cell in former), default=0)
        cells = [Cell(first) for _ in range(step.n_slots)]
        self.machine.boards[step.topology_id, step.version] = cells

    def _store(self, change: StoreChange) -> None:
        store = self.machine.store
        match change:
            case StoreTopology(record):
                if record.id in store:
                    store[record.id].record = record
                else:
                    store[record.id] = Stored(record)
                    self.machine.number = max(self.machine.number, int(record.id.split("-")[1]) + 1)
            case StoreStatus(topology_id, status, kill_wait_secs):
                stored = store[topology_id]
                stored.record = msgspec.structs.replace(stored.record, status=status)
                stored.kill_wait_secs = kill_wait_secs
            case StoreAssignment(assignment):
                store[assignment.topology_id].assignment = assignment
            case StoreRestart(topology_id, restart):
                store[topology_id].restarts[restart.slot, restart.incarnation] = restart
            case DeleteTopology(topology_id):
                del store[topology_id]
                self.machine.deleted.add(topology_id)
            case RemoveUnknown(topology_id):
                self.machine.deleted.add(topology_id)

    def _tell(self, step: NimbusInstruction) -> None:
        match step:
            case SendAssignNode(node):
                if node in self.connected:
                    wanted, supervisor = self.nimbus.assign_node(node), self.nodes[node]
                    self.machine.send(self, supervisor, lambda: supervisor.assign(wanted))
            case RemoveBoard(topology_id, version):
                self.machine.boards.pop((topology_id, version), None)
            case EndWorker(assignment, slot):
                for process in self.known(assignment, slot):
                    process.end(signal.SIGKILL)


class SupervisorDaemon(Actor):
    """One supervisor of a node after the other, with its forking parent."""

    def __init__(self, machine: Machine, nimbus: NimbusDaemon, node: str, ports: list[int]) -> None:
        super().__init__()
        self.machine = machine
        self.node = node
        self.ports = ports
        self.nimbus = nimbus
        self.refuses = 0.0
        """How likely it is that a fork is refused."""
        nimbus.nodes[node] = self

    def start(self) -> None:
        machine = self.machine
        self.up = True
        self.epoch += 1
        self.stopped_until = 0.0
        self._registered = 0
        self._deaths: list[SlotChanged] = []
        self._timers: dict[int, float] = {}
        self._boards: dict[tuple[str, int], list[Cell]] = {}
        """Those that it has mapped, whether or not their files are still there."""
        prospects = Prospects(ProspectOptions(), machine.rng)
        slots = [
            Slot(
                SlotAddress("/nowhere", self.node, port), SlotOptions(), prospects,
                lambda work: self._cell(work).incarnation, lambda work: False, self._unended,
            )
            for port in self.ports
        ]
        self.decisions = Supervisor(slots)
        machine.note(f"{self.node} starts")
        for port in self.ports:
            self._adopt(port)
        self._beat(self.epoch)

    def kill(self) -> None:
        self.machine.note(f"{self.node} dies")
        self.up = False
        self.nimbus.connected.discard(self.node)

    # ---- Nimbus ----

    def _beat(self, epoch: int) -> None:
        if not self.up or self.epoch != epoch:
            return
        machine, nimbus = self.machine, self.nimbus
        if self.stopped_until <= machine.now and nimbus.up:
            if self._registered != nimbus.epoch:
                self._register()
            else:
                machine.send(self, nimbus, lambda: nimbus.hear(self.node))
        pause = HEARTBEAT_SECS if nimbus.up and self._registered == nimbus.epoch else RECONNECT_SECS
        machine.after(pause, lambda: self._beat(epoch))

    def _register(self) -> None:
        nimbus, machine = self.nimbus, self.machine
        self._registered = nimbus.epoch
        request = RegisterSupervisor(self.node, self.ports, 1, self.decisions.holds())

        def answered(wanted: AssignNode) -> None:
            machine.send(nimbus, self, lambda: self.assign(wanted))

        machine.send(self, nimbus, lambda: nimbus.register(request, answered))
        for changed in (*self._deaths, *self.decisions.standing(machine.now)):
            self._tell(changed)

    def _tell(self, changed: SlotChanged) -> None:
        if self.nimbus.up and self._registered == self.nimbus.epoch:
            self.machine.send(self, self.nimbus, lambda: self.nimbus.slot_changed(changed))

    def assign(self, wanted: AssignNode) -> None:
        """What Nimbus wants here. As `SupervisorLoop._assign`."""
        possible = {}
        for port, work in wanted.slots.items():
            if self._admit(work) is None:
                self._tell(SlotChanged(self.node, port, work.topology.id, 0, "failed", 0, self.machine.now, "no board"))
            else:
                possible[port] = work
        self.carry_out(self.decisions.assign(possible, self.machine.now, wanted.keep))

    # ---- boards ----

    def _admit(self, work: SlotAssignment) -> list[Cell] | None:
        key = work.topology.id, work.assignment.version
        found = self.machine.boards.get(key) or self._boards.get(key)
        if found is not None:
            self._boards[key] = found
        return found

    def _cell(self, work: SlotAssignment) -> Cell:
        return self._boards[work.topology.id, work.assignment.version][work.slot_index]

    def _unended(self, work: SlotAssignment) -> int:
        cell = self._cell(work)
        return cell.incarnation if cell.state in (STARTING, READY, DEAD) else 0

    # ---- workers ----

    def _adopt(self, port: int) -> None:
        """As `SupervisorLoop._adopt`."""
        boot, pid = self.machine.ledger.get((self.node, port), (None, 0))
        if boot is None or not self.machine.lives(pid):
            return
        process = self.machine.processes[pid]
        self._watch(process)
        work = SlotAssignment(boot.topology, boot.assignment, boot.slot_index)
        if self._admit(work) is None:
            process.end(signal.SIGKILL)
            return
        cell = self._cell(work)
        if cell.incarnation != boot.incarnation or cell.state not in (STARTING, READY):
            process.end(signal.SIGKILL)
            return
        self.carry_out(self.decisions.adopt(boot, pid, cell.state == READY, self.machine.now))
        if process.is_ready:
            # It says so again when its connection comes back.
            process.on_ready()

    def _watch(self, process: Process) -> None:
        boot = process.boot

        def ready() -> None:
            message = WorkerReady(boot.port, boot.incarnation, process.pid)
            self.machine.send(process, self, lambda: self._ready(message, boot))

        def ended(status: int) -> None:
            self.machine.send(process, self, lambda: self._lost(process.pid))
            self.machine.send(process, self, lambda: self._exited(process.pid, status))

        process.on_ready, process.on_end = ready, ended

    def _ready(self, message: WorkerReady, boot: WorkerBoot) -> None:
        slot = self.decisions.slots[message.port]
        if slot.work is not None and slot.work.topology.id == boot.topology.id:
            self.carry_out(self.decisions.ready(message, self.machine.now))

    def _lost(self, pid: int) -> None:
        port = self.decisions.port_of(pid)
        if port is not None:
            self.carry_out(self.decisions.lost(port, self.machine.now))

    def _exited(self, pid: int, status: int) -> None:
        self.carry_out(self.decisions.exited(pid, status, self.machine.now))

    # ---- what is done ----

    def carry_out(self, orders: list[Order]) -> None:
        queue = deque(orders)
        while queue:
            port, step = queue.popleft()
            queue.extend(self._carry_out_one(port, step))

    def _carry_out_one(self, port: int, step: Any) -> list[Order]:
        match step:
            case order.SetBoard():
                cell = self._boards[step.topology_id, step.version][step.slot_index]
                if cell.incarnation <= step.incarnation:
                    cell.incarnation, cell.state, cell.pid = step.incarnation, step.state, step.pid
            case order.Report(changed):
                self.machine.note(f"{changed.node}:{changed.port} {changed.event} {changed.topology_id}")
                if changed.event == "died":
                    self._deaths.append(changed)
                self._tell(changed)
            case order.Fork(boot):
                return self._fork(boot)
            case order.Signal(pid, signum):
                self._signal(pid, signum)
            case order.SendStop(incarnation) | order.SendStatus(incarnation, _):
                self._say(port, incarnation, step)
            case order.ArmTimer(at_secs):
                self._timers[port] = at_secs
                epoch = self.epoch
                self.machine.at(at_secs, lambda: self._ring(port, epoch))
        return []

    def _ring(self, port: int, epoch: int) -> None:
        machine = self.machine
        if not self.up or self.epoch != epoch or port not in self._timers:
            return
        if self.stopped_until > machine.now:
            machine.at(self.stopped_until, lambda: self._ring(port, epoch))
        elif machine.now >= self._timers[port]:
            del self._timers[port]
            self.carry_out(self.decisions.tick(port, machine.now))

    def _fork(self, boot: WorkerBoot) -> list[Order]:
        machine = self.machine
        if machine.rng.random() < self.refuses:
            return self.decisions.fork_refused(boot.port, boot.incarnation, "refused", machine.now)
        epoch = self.epoch

        def forked() -> None:
            # The forking parent ends with its supervisor; a request that it has read by then is carried out.
            if not self.up or self.epoch != epoch:
                return
            process = machine.fork(boot)
            self._watch(process)
            machine.send(process, self, lambda: self._forked(process))

        machine.after(machine.rng.uniform(0.001, 0.01), forked)
        return []

    def _forked(self, process: Process) -> None:
        boot = process.boot
        orders = self.decisions.forked(boot.port, boot.incarnation, process.pid, self.machine.now)
        if orders is None:
            process.end(signal.SIGKILL)
            return
        self.machine.ledger[self.node, boot.port] = boot, process.pid
        self.carry_out(orders)

    def _signal(self, pid: int, signum: int) -> None:
        process = self.machine.processes.get(pid)
        if process is None:
            return
        if signum == signal.SIGKILL:
            process.end(signum)
        elif not process.hangs:
            self.machine.after(0.001, lambda: process.end(signum))

    def _say(self, port: int, incarnation: int, step: Any) -> None:
        """A message to the slot's worker."""
        slot = self.decisions.slots[port]
        process = self.machine.processes.get(slot.life.pid)
        if process is None or slot.life.incarnation != incarnation:
            return
        if isinstance(step, order.SendStop):
            self.machine.after(0.001, process.stop)
        elif not process.hangs:
            process.status = step.status
