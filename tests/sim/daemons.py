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

from squall.engine.errors import ClusterError
from squall.ipc.board import DEAD, READY, STARTING
from squall.ipc.envelope import NO_NONCE, Nonce
from squall.scheduler.common.messages import (
    Assignment,
    AssignNode,
    RegisterSupervisor,
    SlotAssignment,
    SlotChanged,
    SlotRef,
    SupervisorHeartbeat,
    TopologyRecord,
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
from squall.scheduler.supervisor.departure import Departure
from squall.scheduler.supervisor.prospects import ProspectOptions, Prospects
from squall.scheduler.supervisor.slot import Slot
from squall.scheduler.supervisor.worker_life import SlotAddress, SlotOptions
from tests.sim.invariants import GIVEN_WHILE_LEAVING, InvariantBrokenError
from tests.sim.machine import Actor, Cell, Machine, Process, Stored

HEARTBEAT_SECS, RECONNECT_SECS, LOOK_SECS = 1.0, 0.2, 0.1
_TEARS, _FALLS = 0.02, 0.005
"""How likely it is that Nimbus, or a supervisor, dies at a step of what it carries out."""


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

    def start(self) -> None:
        machine = self.machine
        self.up = True
        self.epoch += 1
        self.stopped_until = 0.0
        self.connected = {}
        machine.note("nimbus starts")
        lives, number, deleted = self._read_store()
        unknown = self._tidy_boards(lives, deleted)
        self.nimbus = self._decisions(lives, number, machine.now, deleted, unknown)
        self._tick(self.epoch)

    def _tidy_boards(self, lives: list[TopologyLife], deleted: set[str]) -> set[str]:
        """As `leftovers.tidy_boards` and `mend_boards`. Returns ids of topologies that nobody knows."""
        machine = self.machine
        wanted = {(life.record.id, life.version) for life in lives if life.assignment is not None}
        for key in [key for key in machine.boards if key not in wanted]:
            del machine.boards[key]
        for life in lives:
            if life.assignment is not None and (life.record.id, life.version) not in machine.boards:
                self._make_board(CreateBoard(life.record.id, len(life.slots), 1, life.version))
        return set()

    def _read_store(self) -> tuple[list[TopologyLife], int, set[str]]:
        """What is stored: topologies, the next one's number, and ids of those that were deleted."""
        lives = [
            TopologyLife(
                stored.record, stored.assignment, list(stored.restarts.values()), len(stored.restarts),
                stored.kill_wait_secs,
            )
            for stored in self.machine.store.values()
        ]
        return lives, self.machine.number, self.machine.deleted

    def kill(self) -> None:
        self.machine.note("nimbus dies")
        self.up = False

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
        return self.up

    def _tick(self, epoch: int) -> None:
        if not self.up or self.epoch != epoch:
            return
        machine, nimbus = self.machine, self.nimbus
        now = machine.now
        if self.stopped_until <= now:
            for record, assignment in nimbus.draining():
                if self._is_at_rest(record, assignment):
                    self.do(lambda record=record: nimbus.drained(record.id, now))  # type: ignore[misc]
            for record, assignment, slots in nimbus.unaccounted(now):
                named = [assignment.workers[index] for index in slots]
                living = [slot for slot in named if self.known(assignment, slot)]
                self.do(lambda r=record, n=named, a=living: nimbus.looked(r.id, n, a, now))  # type: ignore[misc]
            for record, assignment, slots in nimbus.missing(now):
                if not all(self.known(assignment, assignment.workers[index]) for index in slots):
                    self.do(lambda record=record: nimbus.lost(record.id, now))  # type: ignore[misc]
            self.do(lambda: nimbus.tick(now))
            for record in nimbus.replaceable():
                self.do(lambda record=record: nimbus.replaced(record.id, now))  # type: ignore[misc]
        machine.after(LOOK_SECS, lambda: self._tick(epoch))

    def _is_at_rest(self, record: TopologyRecord, assignment: Assignment) -> bool:
        """Whether nothing of it is under way any more; here it takes some time, while all its workers live."""
        if self.machine.rng.random() >= 0.2:
            return False
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
        self._store_all([step for step in steps if isinstance(step, StoreChange)])
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

    def _store_all(self, changes: list[StoreChange]) -> None:
        for change in changes:
            self._store(change)

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
                    wanted, nonce, supervisor = self.nimbus.assign_node(node), self.next_nonce(), self.nodes[node]
                    self.machine.send(self, supervisor, lambda: supervisor.order(wanted, nonce))
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
        self.parent = 0
        """Counts its forking parents."""
        self._parent_from = 0.0
        self.tears = True
        self.fell: Callable[[], None] = lambda: None
        """Called when it has died of what it carried out."""
        self._asked = 0
        """Counts its registrations."""
        nimbus.nodes[node] = self

    def start(self) -> None:
        machine = self.machine
        self.up = True
        self.epoch += 1
        self.stopped_until = 0.0
        self._registered = 0
        self._answer = NO_NONCE
        self._deaths: list[SlotChanged] = []
        self._departure: Departure | None = None
        self._left_with: set[tuple[str, int]] | None = None
        """Once Nimbus knows that it is leaving: the work that it had then, by topology and version."""
        self._is_ending = False
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
        self._boots: dict[int, WorkerBoot] = {}
        """Port -> the worker that was asked for or adopted last."""
        for port in self.ports:
            self._adopt(port)
        for process in machine.processes.values():
            if process.boot.node == self.node and process.is_ready:
                # It says so again when its connection comes back.
                process.on_ready()
        self._beat(self.epoch)

    def kill(self) -> None:
        self.machine.note(f"{self.node} dies")
        self.up = False
        self.parent += 1
        if self.nimbus.connected.get(self.node) == self.epoch:
            del self.nimbus.connected[self.node]

    def leave(self, within_secs: float) -> None:
        """Told to end: as `SupervisorLoop.depart`, until the node is idle or the time is over."""
        machine = self.machine
        machine.note(f"{self.node} is leaving within {within_secs:g} s")
        self._departure = Departure(machine.now, within_secs)
        if self.nimbus.up and self._registered == self.nimbus.epoch:
            self._register()
        self._end_if_over(self.epoch)

    @property
    def is_leaving(self) -> bool:
        return self.up and self._departure is not None

    def _end_if_over(self, epoch: int) -> None:
        machine = self.machine
        if not self.up or self.epoch != epoch or self._departure is None:
            return
        if self.stopped_until <= machine.now:
            if not self._is_ending and self._departure.is_over(machine.now, self.decisions.is_idle):
                self._is_ending = True
                self.carry_out(self.decisions.shut_down(SlotOptions().stop_grace_secs, machine.now))
            if self.up and self._is_ending and self.decisions.is_empty:
                machine.note(f"{self.node} has left")
                self.kill()
                self.fell()
                return
        machine.after(LOOK_SECS, lambda: self._end_if_over(epoch))

    def kill_parent(self) -> None:
        """The forking parent dies: what it was asked for, and what it has to tell, is lost; workers live on."""
        machine = self.machine
        machine.note(f"{self.node} loses its forking parent")
        self.parent += 1
        self._parent_from = machine.now + machine.rng.uniform(0.02, 0.3)
        machine.send((self.node, self.parent), self, self._parent_ended)

    def _parent_ended(self) -> None:
        self.carry_out(self.decisions.forking_parent_ended("killed", self.machine.now))

    # ---- Nimbus ----

    def _beat(self, epoch: int) -> None:
        if not self.up or self.epoch != epoch:
            return
        machine, nimbus = self.machine, self.nimbus
        if self.stopped_until <= machine.now and nimbus.up:
            if self._registered != nimbus.epoch:
                self._register()
            else:
                machine.send(self, nimbus, lambda: nimbus.hear(self.node, epoch))
        pause = HEARTBEAT_SECS if nimbus.up and self._registered == nimbus.epoch else RECONNECT_SECS
        machine.after(pause, lambda: self._beat(epoch))

    def _register(self) -> None:
        nimbus, machine = self.nimbus, self.machine
        self._registered = nimbus.epoch
        self._answer = NO_NONCE
        self._asked += 1
        asked, departure = self._asked, self._departure
        left_secs = None if departure is None else max(0.0, departure.leave_by - machine.now)
        request = RegisterSupervisor(self.node, self.ports, 1, self.decisions.holds(), left_secs, self.epoch)

        def heard(wanted: AssignNode, nonce: Nonce) -> None:
            if asked != self._asked:
                return
            self._answer = nonce
            if departure is not None:
                departure.answered()
                self._left_with = (self._left_with or set()) | _works(wanted)
            self.assign(wanted)

        def answered(wanted: AssignNode) -> None:
            nonce = nimbus.next_nonce()
            machine.send(nimbus, self, lambda: heard(wanted, nonce))

        machine.send(self, nimbus, lambda: nimbus.register(request, answered))
        for changed in (*self._deaths, *self.decisions.standing(machine.now)):
            self._tell(changed)

    def _tell(self, changed: SlotChanged) -> None:
        if self.nimbus.up and self._registered == self.nimbus.epoch:
            epoch = self.epoch
            self.machine.send(self, self.nimbus, lambda: self.nimbus.slot_changed(changed, epoch))

    def order(self, wanted: AssignNode, nonce: Nonce) -> None:
        """An assignment that nobody has asked for. As `NimbusLink.recv_event`."""
        is_old = self._registered != self.nimbus.epoch
        if is_old and self.nimbus.up and nonce.sequence % 2:
            # The news of the connection were read before what a Nimbus that has died had sent. Or after it.
            self._register()
        if nonce.follows(self._answer):
            self.assign(wanted)

    def assign(self, wanted: AssignNode) -> None:
        """What Nimbus wants here. As `SupervisorLoop._assign`."""
        if self._left_with is not None and not _works(wanted) <= self._left_with:
            raise InvariantBrokenError(GIVEN_WHILE_LEAVING, f"{self.node}: {_works(wanted) - self._left_with}")
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
        self._watch(process, None)
        self._boots[port] = boot
        work = SlotAssignment(boot.topology, boot.assignment, boot.slot_index)
        if self._admit(work) is None:
            process.end(signal.SIGKILL)
            return
        cell = self._cell(work)
        if cell.incarnation != boot.incarnation or cell.state not in (STARTING, READY):
            process.end(signal.SIGKILL)
            return
        self.carry_out(self.decisions.adopt(boot, pid, cell.state == READY, self.machine.now))

    def _watch(self, process: Process, parent: int | None) -> None:
        """Hear of its end. Only the forking parent that forked it can tell its exit status."""
        boot = process.boot

        def ready() -> None:
            message = WorkerReady(boot.port, boot.incarnation, process.pid)
            self.machine.send(process.pid, self, lambda: self._ready(message, boot))

        def ended(status: int) -> None:
            self.machine.send(process.pid, self, lambda: self._lost(process.pid))
            if parent == self.parent:
                self.machine.send(process.pid, self, lambda: self._exited(process.pid, status))

        process.on_ready, process.on_end = ready, ended

    def _ready(self, message: WorkerReady, boot: WorkerBoot) -> None:
        known = self._boots.get(message.port)
        if known is not None and known.sender == boot.sender:
            self.carry_out(self.decisions.ready(message, self.machine.now))
        elif message.pid in self.machine.processes:
            # As `Dispatcher.knows`.
            self.machine.processes[message.pid].stop()

    def _lost(self, pid: int) -> None:
        port = self.decisions.port_of(pid)
        if port is not None:
            self.carry_out(self.decisions.lost(port, self.machine.now))

    def _exited(self, pid: int, status: int) -> None:
        self.carry_out(self.decisions.exited(pid, status, self.machine.now))

    # ---- what is done ----

    def carry_out(self, orders: list[Order]) -> None:
        queue = deque(orders)
        while queue and self.up:
            port, step = queue.popleft()
            queue.extend(self._carry_out_one(port, step))
            if self.tears and self.machine.rng.random() < _FALLS:
                self.kill()
                self.fell()

    def _carry_out_one(self, port: int, step: Any) -> list[Order]:
        match step:
            case order.SetBoard():
                cell = self._boards[step.topology_id, step.version][step.slot_index]
                if cell.incarnation <= step.incarnation:
                    cell.incarnation, cell.state, cell.pid = step.incarnation, step.state, step.pid
                    self.machine.board_says(step)
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
        self._boots[boot.port] = boot
        if machine.rng.random() < self.refuses:
            return self.decisions.fork_refused(boot.port, boot.incarnation, "refused", machine.now)
        if machine.now < self._parent_from:
            return self.decisions.fork_refused(boot.port, boot.incarnation, "no forking parent", machine.now)
        parent = self.parent

        def forked() -> None:
            if self.parent != parent:
                return
            process = machine.fork(boot)
            self._watch(process, parent)
            machine.send(process.pid, self, lambda: self._forked(process))

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
        epoch = self.epoch

        def arrive() -> None:
            # If it was killed by now, ZeroMQ has not written the message.
            if self.up and self.epoch == epoch:
                process.hear_order("" if isinstance(step, order.SendStop) else step.status)

        process.hears_at = max(process.hears_at, self.machine.now + self.machine.rng.uniform(0.0005, 0.005))
        self.machine.at(process.hears_at, arrive)
        if isinstance(step, order.SendStatus):
            self._note_status(port, step.status)

    def _note_status(self, port: int, status: str) -> None:
        """As `Dispatcher` does, for the supervisor after this one."""
        boot, pid = self.machine.ledger[self.node, port]
        topology = msgspec.structs.replace(boot.topology, status=status)
        self.machine.ledger[self.node, port] = msgspec.structs.replace(boot, topology=topology), pid


def _works(wanted: AssignNode) -> set[tuple[str, int]]:
    """Topology and version of each assignment of which the node has work."""
    return {(work.topology.id, work.assignment.version) for work in wanted.slots.values()}
