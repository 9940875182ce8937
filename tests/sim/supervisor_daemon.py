"""The supervisor of a node of the simulated cluster: the product's decisions, and what carries them out on the machine.

`scheduler.supervisor.loop` and `scheduler.supervisor.dispatcher` work with sockets, files and processes; here the same
is done in few lines, in the same order. A supervisor dies between any two steps of it.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from squall.ipc.board import READY, STARTING, Board, SlotCell
from squall.ipc.envelope import NO_NONCE, Nonce
from squall.scheduler.common.messages import (
    AssignNode,
    RegisterSupervisor,
    SlotAssignment,
    SlotChanged,
    WorkerBoot,
    WorkerReady,
)
from squall.scheduler.common.restart_policy import RestartPolicyOptions
from squall.scheduler.common.role import STOP_GRACE_SECS
from squall.scheduler.supervisor import instruction as order
from squall.scheduler.supervisor.death_judge import DeathJudge
from squall.scheduler.supervisor.decisions import Order, Supervisor
from squall.scheduler.supervisor.nimbus_link import Departure
from squall.scheduler.supervisor.slot import Slot
from squall.scheduler.supervisor.worker_life import SlotAddress, WorkerRow
from tests.sim.invariants import GIVEN_WHILE_LEAVING, InvariantBrokenError
from tests.sim.machine import Actor, Machine, Process
from tests.sim.nimbus_daemon import LOOK_SECS, NimbusDaemon

HEARTBEAT_SECS, RECONNECT_SECS = 1.0, 0.2
_DIES = 0.005
"""How likely it is that a supervisor dies at a step of what it carries out."""


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
        self._boards: dict[tuple[str, int], Board] = {}
        """Those that it has mapped, whether or not their files are still there."""
        judge = DeathJudge(RestartPolicyOptions(), machine.rng)
        slots = [
            Slot(SlotAddress("/nowhere", self.node, port), judge, lambda work: WorkerRow(*self._row(work)[:2]))
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
        """Told to end: as `SupervisorLoop._depart`, until the node is idle or the time is over."""
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
                self.carry_out(self.decisions.shut_down(STOP_GRACE_SECS, machine.now))
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
        machine.send((self.node, self.parent), self, lambda: self._hear(self.decisions.forking_parent_ended, "killed"))

    def _hear(self, decide: Callable[..., list[Order]], *what: Any) -> None:
        self.carry_out(decide(*what, self.machine.now))

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

    def _admit(self, work: SlotAssignment) -> Board | None:
        key = work.topology.id, work.assignment.version
        found = self.machine.board(*key) or self._boards.get(key)
        if found is None or work.slot_index >= found.n_slots:
            return None
        self._boards[key] = found
        return found

    def _row(self, work: SlotAssignment) -> SlotCell:
        return self._boards[work.topology.id, work.assignment.version].slot(work.slot_index)

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
        row = self._row(work)
        if row.incarnation != boot.incarnation or row.state not in (STARTING, READY):
            process.end(signal.SIGKILL)
            return
        self.carry_out(self.decisions.adopt(boot, pid, row.state == READY, self.machine.now))

    def _watch(self, process: Process, parent: int | None) -> None:
        """Hear of its end. Only the forking parent that forked it can tell its exit status."""
        boot = process.boot

        def ready() -> None:
            message = WorkerReady(boot.port, boot.incarnation, process.pid)
            self.machine.send(process.pid, self, lambda: self._ready(message, boot))

        def ended(status: int) -> None:
            self.machine.send(process.pid, self, lambda: self._lost(process.pid))
            if parent == self.parent:
                self.machine.send(process.pid, self, lambda: self._hear(self.decisions.exited, process.pid, status))

        process.on_ready, process.on_end = ready, ended

    def _ready(self, message: WorkerReady, boot: WorkerBoot) -> None:
        known = self._boots.get(message.port)
        if known is not None and known.sender == boot.sender:
            self._hear(self.decisions.heard, message)
        elif message.pid in self.machine.processes:
            # As `Dispatcher.knows`.
            self.machine.processes[message.pid].stop()

    def _lost(self, pid: int) -> None:
        port = self.decisions.port_of(pid)
        if port is not None:
            self._hear(self.decisions.lost, port)

    # ---- what is done ----

    def carry_out(self, orders: list[Order]) -> None:
        queue = deque(orders)
        while queue and self.up:
            port, step = queue.popleft()
            queue.extend(self._carry_out_one(port, step))
            if self.tears and self.machine.rng.random() < _DIES:
                self.kill()
                self.fell()

    def _carry_out_one(self, port: int, step: Any) -> list[Order]:
        match step:
            case order.SetBoard():
                board = self._boards[step.topology_id, step.version]
                if board.slot(step.slot_index).incarnation <= step.incarnation:
                    board.set_slot(step.slot_index, step.incarnation, step.state, step.pid)
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
            self._hear(self.decisions.tick, port)

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
