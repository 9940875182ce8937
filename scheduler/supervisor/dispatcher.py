"""Carries out a supervisor's orders: boards, reports, forks, signals, messages, timers.

Guarantees
    * Orders are carried out in sequence; those that an order leads to come after the ones already given.
    * No order waits for another process.
    * A worker's end is seen at once, by whichever process it was forked, and a signal goes to the worker or to nobody:
      its start time is compared after its pidfd was opened.
    * A message for a worker that this supervisor has not heard of is dropped: an adopted worker says that it is ready
      when it has found its new supervisor, and its slot then answers with what it is to know.

Relies on: `scheduler.supervisor.decisions` for every decision; `main` to make and close the parts. Thread: the
supervisor's loop.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import deque
from dataclasses import dataclass

import msgspec
import zmq

from squall.engine.errors import ClusterError
from squall.ipc.control import ControlServer
from squall.ipc.rundir import RunDir
from squall.scheduler.common import process
from squall.scheduler.common.messages import SetStatus, SlotChanged, StopWorker, WorkerBoot
from squall.scheduler.common.standstill import DUMP_SIGNAL, log_size, python_stack
from squall.scheduler.faults.in_force import DaemonFaults
from squall.scheduler.records.worker_ledger import WorkerLedger
from squall.scheduler.supervisor.death_judge import DeathJudge
from squall.scheduler.supervisor.decisions import Order, Supervisor
from squall.scheduler.supervisor.forking_parent import ForkingParent
from squall.scheduler.supervisor.instruction import (
    ArmTimer,
    DumpStacks,
    Fork,
    Instruction,
    ReplaceForkingParent,
    Report,
    SendStatus,
    SendStop,
    SetBoard,
    SetVerdict,
    Signal,
)
from squall.scheduler.supervisor.nimbus_link import NimbusLink
from squall.scheduler.supervisor.node_boards import NodeBoards

log = logging.getLogger(__name__)


class WorkerWatch:
    """The pidfd of every worker whose end was not seen yet: the caller forgets each whose end it has seen."""

    def __init__(self, poller: zmq.Poller) -> None:
        self._poller = poller
        self._pidfds: dict[int, int] = {}
        self._started_ticks: dict[int, int] = {}

    def add(self, pid: int, started_ticks: int) -> None:
        """Watch the worker of this pid and start time. ClusterError if it has ended, or cannot be watched."""
        pidfd = process.open_proven(pid, started_ticks)
        self._started_ticks[pid] = started_ticks
        self._pidfds[pid] = pidfd
        self._poller.register(pidfd, zmq.POLLIN)

    def pid_of(self, fd: object) -> int | None:
        """The worker that a polled descriptor stands for."""
        return next((pid for pid, pidfd in self._pidfds.items() if pidfd == fd), None)

    def holds(self, pid: int) -> bool:
        return pid in self._pidfds

    def started_ticks(self, pid: int) -> int:
        """Start time of a worker, as from `process.start_time_ticks`; 0 if unknown."""
        return self._started_ticks.get(pid, 0)

    def reap(self, pid: int) -> int | None:
        """The exit status, if the worker is a dead child of this process, or its forking parent has not reaped it yet;
        else None: its forking parent will tell."""
        pidfd = self._pidfds.get(pid)
        if pidfd is None:
            return None
        try:
            return process.reap(pidfd)
        except ChildProcessError:
            return process.status_of_zombie(pid)

    def send_signal(self, pid: int, signum: int) -> None:
        """Signal a worker; SIGKILL goes to its whole process group."""
        pidfd = self._pidfds.get(pid)
        if pidfd is None:
            return
        if signum == signal.SIGKILL:
            process.send_signal_to_group(pid, signum)
            # A child that was just forked leads no group yet.
        process.send_signal(pidfd, signum)

    def forget(self, pid: int) -> None:
        """Forget a worker that has ended."""
        pidfd = self._pidfds.pop(pid, None)
        if pidfd is not None:
            del self._started_ticks[pid]
            self._poller.unregister(pidfd)
            os.close(pidfd)

    def close(self) -> None:
        for pid in list(self._pidfds):
            self.forget(pid)


class Dispatcher:
    """Carries out the orders of one supervisor. It does not own its parts."""

    def __init__(self, parts: SupervisorParts) -> None:
        self._parts = parts
        self._supervisor = parts.supervisor
        self._watch = parts.watch
        self._boots: dict[int, WorkerBoot] = {}
        """port -> boot of the worker that was requested last."""
        self._stacks_from: dict[int, int] = {}
        """port -> offset in the worker's log at which its stacks would begin."""
        self.timers: dict[int, float] = {}
        """port -> when to call `tick` of its slot."""

    def carry_out(self, orders: list[Order]) -> None:
        queue = deque(orders)
        while queue:
            port, instruction = queue.popleft()
            queue.extend(self._carry_out_one(port, instruction))

    def take_in(self, boot: WorkerBoot, pid: int, started_ticks: int) -> None:
        """Watch a worker of an earlier supervisor, and remember its work. ClusterError if it has ended."""
        self._watch.add(pid, started_ticks)
        self._boots[boot.port] = boot

    def note(self, port: int, pid: int) -> None:
        """Note down a port's worker on disk, for the supervisor after this one."""
        self._parts.ledger.write(self._boots[port], pid)

    def _carry_out_one(self, port: int, instruction: Instruction) -> list[Order]:
        """Carry out one order; returns the orders that it led to."""
        match instruction:
            case SetBoard():
                if not self._parts.boards.write(instruction, self._watch.started_ticks(instruction.pid)):
                    log.warning("port %d is overtaken on its status board: %s", port, instruction)
            case SetVerdict():
                self._parts.boards.write_verdict(instruction)
            case Report(changed):
                self._report(changed)
            case Fork(boot):
                return self._fork(boot)
            case Signal(pid, signum):
                self._watch.send_signal(pid, signum)
            case DumpStacks(pid):
                self._stacks_from[port] = log_size(self._boots[port].log_path)
                self._watch.send_signal(pid, DUMP_SIGNAL)
            case SendStop(incarnation):
                self._send(port, incarnation, StopWorker())
            case SendStatus(incarnation, status):
                self._send(port, incarnation, SetStatus(status))
            case ArmTimer(at_secs):
                self.timers[port] = at_secs
            case ReplaceForkingParent(reason):
                self._parts.forking_parent.replace(reason)
        return []

    def stack_of(self, port: int) -> str:
        """The Python stacks that a port's present worker wrote on a crash or on request."""
        boot = self._boots.get(port)
        return "" if boot is None else python_stack(boot.log_path, self._stacks_from.get(port, 0))

    def _report(self, changed: SlotChanged) -> None:
        self._record(changed)
        _log_change(changed)
        self._parts.nimbus.report(changed)
        if changed.event in ("died", "stopped"):
            self._remove_socket(changed)

    def _record(self, changed: SlotChanged) -> None:
        """Write the step to disk, before any report. A full disk must not stop workers from being replaced."""
        try:
            self._parts.ledger.note_step(changed)
        except OSError as error:
            log.warning("a step of port %d is not on record: %s", changed.port, error.strerror)

    def _remove_socket(self, changed: SlotChanged) -> None:
        """Remove the socket of a worker, which a kill leaves behind."""
        boot = self._boots.get(changed.port)
        if boot is not None and boot.incarnation == changed.incarnation:
            boot.socket.unlink(missing_ok=True)

    def remove_old_sockets(self) -> None:
        """Remove the sockets of workers that ended while there was no supervisor. Called after the adoptions."""
        for port in self._supervisor.slots:
            boot = self._boots.get(port)
            for path in self._parts.run_dir.worker_sockets(self._parts.node, port):
                if boot is None or path != boot.socket:
                    path.unlink(missing_ok=True)

    def _fork(self, boot: WorkerBoot) -> list[Order]:
        self._boots[boot.port] = boot
        self._stacks_from[boot.port] = log_size(boot.log_path)
        try:
            if refusal := self._parts.faults.fork_refusal(time.monotonic()):
                raise ClusterError(refusal)
            self._parts.forking_parent.request_fork(boot)
        except ClusterError as error:
            return self._supervisor.fork_refused(boot.port, boot.incarnation, str(error), time.monotonic())
        return []

    def knows(self, sender: str, port: int) -> bool:
        """Whether this is the worker that was requested or adopted last for a port. Tells any other one to stop."""
        boot = self._boots.get(port)
        if boot is not None and boot.sender == sender:
            return True
        log.warning("%s is not the worker of port %d: it is told to stop", sender, port)
        self._parts.server.send_event(sender, StopWorker())
        return False

    def _send(self, port: int, incarnation: int, message: SetStatus | StopWorker) -> None:
        boot = self._boots.get(port)
        if boot is None or boot.incarnation != incarnation:
            return
        if self._parts.server.send_event(boot.sender, message) and isinstance(message, SetStatus):
            self._note_status(port, message.status)

    def _note_status(self, port: int, status: str) -> None:
        """Note the last status that the worker was told, for the supervisor after this one."""
        boot = self._boots[port]
        self._boots[port] = msgspec.structs.replace(
            boot, topology=msgspec.structs.replace(boot.topology, status=status)
        )
        self.note(port, self._supervisor.slots[port].life.pid)


def _log_change(changed: SlotChanged) -> None:
    log.log(
        logging.WARNING if changed.event in ("died", "failed") else logging.INFO,
        "%s incarnation %d (pid %d) %s %s",
        *(changed.slot, changed.incarnation, changed.pid, changed.event, changed.reason),
    )


@dataclass(frozen=True)
class SupervisorParts:
    """`main` owns and closes them. Thread: the supervisor's loop."""

    node: str
    supervisor: Supervisor
    boards: NodeBoards
    judge: DeathJudge
    server: ControlServer
    nimbus: NimbusLink
    forking_parent: ForkingParent
    watch: WorkerWatch
    ledger: WorkerLedger
    faults: DaemonFaults
    run_dir: RunDir
