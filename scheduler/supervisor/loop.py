"""A supervisor's loop: waits for events on its node, asks for decisions, has the orders carried out.

Guarantees
    * A worker's death is written to the status board before anything else is done about it, and waits only for its
      exit status and the orders under way: no step of the loop blocks, except registering with a Nimbus that has just
      been reached.
    * The loop watches workers by their own pidfds, so it needs no forking parent to hear of deaths; it replaces one.
    * The loop reaps every descendant that ends.

Relies on: being a subreaper. Supervisor and slots decide; nothing is decided here. Thread: main.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Collection

import zmq

from squall.engine.errors import ClusterError, ProtocolError
from squall.engine.foreign.text import plain
from squall.ipc.board import READY, STARTING
from squall.ipc.control import Incoming
from squall.ipc.rundir import Presence
from squall.scheduler.common import process
from squall.scheduler.common.daemon import SignalInbox
from squall.scheduler.common.messages import (
    AssignNode,
    Shutdown,
    SlotAssignment,
    SlotChanged,
    WorkerFailed,
    WorkerReady,
)
from squall.scheduler.common.role import STOP_GRACE_SECS
from squall.scheduler.common.standstill import CRASH_SIGNALS, ProgressWatch
from squall.scheduler.forking.parent import ChildExited, Forked, ForkRefused, SpareEnded
from squall.scheduler.records.worker_ledger import LedgerEntry
from squall.scheduler.supervisor.decisions import Order, Spares
from squall.scheduler.supervisor.dispatcher import Dispatcher, SupervisorParts
from squall.scheduler.supervisor.forking_parent import ForkingParentEnded, ForkingParentEvent
from squall.scheduler.supervisor.nimbus_link import Departure
from squall.scheduler.supervisor.worker_life import SlotState, WorkerRemains

FRAMES_PER_TURN = 100
SWEEP_SECS = 1.0
LEAVE_MARGIN_SECS = 1.5
"""Longest time from the end of a worker's grace, when it is killed, to the end of its process."""

log = logging.getLogger(__name__)


class SupervisorLoop:
    """One supervisor's loop. It does not own its parts."""

    def __init__(
        self, parts: SupervisorParts, poller: zmq.Poller, inbox: SignalInbox, stop_signals: Collection[int],
        drain_secs: float | None,
    ) -> None:
        self._parts = parts
        self._supervisor = parts.supervisor
        self._boards = parts.boards
        self._judge = parts.judge
        self._nimbus = parts.nimbus
        self._forking_parent = parts.forking_parent
        self._faults = parts.faults
        self._watch = parts.watch
        self._poller = poller
        self._inbox = inbox
        self._stop_signals = stop_signals
        self._drain_secs = drain_secs
        self._asked_to_leave = False
        self._dispatcher = Dispatcher(parts)
        self._spares = Spares()
        self._presence = Presence(parts.run_dir.path)
        self._progress = ProgressWatch(2 * SWEEP_SECS)
        self._sweep_at = 0.0
        self._oom_kills = deque([process.out_of_memory_kills()] * 2, maxlen=2)
        """At the last two sweeps."""
        self._leave_at: float | None = None
        self._departure: Departure | None = None
        for source in (parts.server.socket, *parts.nimbus.sources):
            poller.register(source, zmq.POLLIN)

    def adopt(self) -> None:
        """Take over the workers that outlived an earlier supervisor of this node. Called before `run`."""
        for port in self._supervisor.slots:
            entry = self._parts.ledger.entry(port)
            if entry is not None:
                self._adopt(entry)
        self._dispatcher.remove_old_sockets()
        # What an earlier supervisor has stopped may be due to go on.
        self._faults.look(time.monotonic())

    def run(self, tell_ready: Callable[[], None]) -> None:
        """Run until told to leave, and every slot is empty. ClusterError if a worker cannot be ended. `tell_ready` is
        called once, when the node has registered."""
        self._tell_ready: Callable[[], None] | None = tell_ready
        while self._leave_at is None or not self._supervisor.is_empty:
            readable = [source for source, _ in self._poller.poll(self._timeout_ms())]
            now = time.monotonic()
            for source in readable:
                pid = self._watch.pid_of(source)
                if pid is not None:
                    self._lost(pid, now)
            if self._forking_parent.fd in readable:
                self._take_forking_parent(now)
            self._take_signals()
            self._take_workers(now)
            self._take_nimbus(now)
            self._take_time(time.monotonic())

    def _take_signals(self) -> None:
        signals = self._inbox.take()
        if signal.SIGCHLD in signals:
            self._reap_strays()
        for _ in filter(self._stop_signals.__contains__, signals):
            self._take_stop()
        if self._inbox.lifeline_cut():
            log.info("lifeline cut: leaving")
            self._leave(STOP_GRACE_SECS)

    def _take_stop(self) -> None:
        if not self._asked_to_leave and self._drain_secs:
            log.info("told to stop: draining for up to %g s; told again, it leaves at once", self._drain_secs)
            self._depart(self._drain_secs)
        else:
            log.info("told to stop: leaving")
            self._leave(0.0 if self._asked_to_leave else STOP_GRACE_SECS)
        self._asked_to_leave = True

    def _depart(self, within_secs: float) -> None:
        """Have Nimbus move the workers' topologies away, drained, then end. `_leave` ends sooner."""
        now = time.monotonic()
        self._departure = Departure(now, within_secs)
        self._nimbus.ask_to_leave(self._departure, now)

    def _leave(self, grace_secs: float) -> None:
        """Stop every worker, then end."""
        now = time.monotonic()
        limit = now + grace_secs + LEAVE_MARGIN_SECS
        self._leave_at = limit if self._leave_at is None else min(limit, self._leave_at)
        # A worker that stands still does not hear that it is to stop.
        self._faults.end(now)
        self._dispatcher.carry_out(self._supervisor.shut_down(grace_secs, now))

    def _reap_strays(self) -> None:
        """Reap ended children that nobody else reaps. Called on SIGCHLD."""
        now = time.monotonic()
        while (pid := process.peek_dead_child()) is not None and pid != self._forking_parent.pid:
            if self._supervisor.port_of(pid) is not None and self._watch.holds(pid):
                self._lost(pid, now)
                continue
            _, status = os.waitpid(pid, 0)
            self._dispatcher.carry_out(self._exited(pid, status, now))

    def _adopt(self, entry: LedgerEntry) -> None:
        boot, pid = entry.boot, entry.pid
        try:
            self._dispatcher.take_in(boot, pid, entry.start_time_ticks)
        except ClusterError as error:
            log.info("worker of port %d: %s", boot.port, error)
            return
        try:
            cell = self._boards.admit(SlotAssignment(boot.topology, boot.assignment, boot.slot_index))
            if cell.incarnation != boot.incarnation or cell.state not in (STARTING, READY):
                raise ClusterError(f"the status board says {cell}")
        except ClusterError as error:
            log.warning("worker %d, incarnation %d of port %d, is killed: %s", pid, boot.incarnation, boot.port, error)
            self._watch.send_signal(pid, signal.SIGKILL)
            return
        log.info("worker %d, incarnation %d of port %d, is adopted", pid, boot.incarnation, boot.port)
        orders = self._supervisor.adopt(boot, pid, cell.state == READY, time.monotonic())
        self._dispatcher.carry_out(orders)

    # ---- events ----

    def _lost(self, pid: int, now: float) -> None:
        """A worker's process has ended, as its pidfd tells."""
        port = self._supervisor.port_of(pid)
        if port is not None:
            self._dispatcher.carry_out(self._supervisor.lost(port, now))
        status = self._watch.reap(pid)
        self._watch.forget(pid)
        if status is not None:
            self._dispatcher.carry_out(self._exited(pid, status, now))

    def _exited(self, pid: int, status: int, now: float) -> list[Order]:
        """Report an exit status, with the remains of the worker."""
        port = self._supervisor.port_of(pid)
        if port is None:
            return []
        slot = self._supervisor.slots[port]
        crashed = os.WIFSIGNALED(status) and os.WTERMSIG(status) in CRASH_SIGNALS
        stack = self._dispatcher.stack_of(port) if crashed or slot.life.remark else ""
        remains = WorkerRemains(stack)
        if slot.work is not None:
            row = self._boards.look(slot.work)
            # A worker that ended before it opened has left its predecessor's word unchanged.
            working_secs = row.working_secs if row.working_secs > slot.life.forked_at else 0.0
            oom = process.out_of_memory_kills() > self._oom_kills[0]
            remains = WorkerRemains(stack, row.rss_bytes, working_secs, oom)
        return self._supervisor.exited(pid, status, now, remains)

    def _take_forking_parent(self, now: float) -> None:
        for event in self._forking_parent.events(now):
            self._dispatcher.carry_out(self._orders_of(event, now))
            if isinstance(event, ChildExited):
                self._watch.forget(event.pid)
            elif isinstance(event, ForkingParentEnded):
                # Its dead children are this process's now, so look for them.
                self._reap_strays()

    def _orders_of(self, event: ForkingParentEvent, now: float) -> list[Order]:
        match event:
            case Forked(port, incarnation, pid, started_ticks):
                self._watch_new(pid, started_ticks)
                orders = self._supervisor.forked(port, incarnation, pid, now)
                if orders is None:
                    log.warning("worker %d of port %d came too late, it is killed", pid, port)
                    self._watch.send_signal(pid, signal.SIGKILL)
                else:
                    self._dispatcher.note(port, pid)
                return orders or []
            case ForkRefused(port, incarnation, error):
                return self._supervisor.fork_refused(port, incarnation, error, now)
            case ChildExited(pid, status):
                return self._exited(pid, status, now)
            case SpareEnded(topology_id, reason):
                self._spares.ended(topology_id, reason, now)
                return []
            case ForkingParentEnded(reason):
                self._spares.all_ended()
                return self._supervisor.forking_parent_ended(f"the forking parent has ended: {reason}", now)

    def _watch_new(self, pid: int, started_ticks: int) -> None:
        """Watch a worker that was just forked, unless it has ended: then its exit status follows."""
        try:
            self._watch.add(pid, started_ticks)
        except ClusterError:
            if process.lives(pid, started_ticks):
                # Nobody could see its end. A new supervisor starts another incarnation, and this one's lease ends.
                raise

    def _take_workers(self, now: float) -> None:
        for _ in range(FRAMES_PER_TURN):
            incoming = self._parts.server.recv()
            if incoming is None:
                return
            try:
                message: WorkerReady | WorkerFailed
                if incoming.method == "WorkerReady":
                    message = incoming.decode(WorkerReady)
                elif incoming.method == "WorkerFailed":
                    message = incoming.decode(WorkerFailed)
                else:
                    raise ProtocolError(f"{incoming.method} from {incoming.peer} is not understood")
                if self._dispatcher.knows(incoming.peer, message.port):
                    self._dispatcher.carry_out(self._supervisor.heard(message, now))
            except ProtocolError as error:
                log.warning("%s", error)

    def _take_nimbus(self, now: float) -> None:
        wanted = self._nimbus.tick(now, self._supervisor.holds, lambda: self._supervisor.standing(now))
        if wanted is not None:
            for name in wanted.without_room:
                log.warning("%s is drained too, and waits: no other node has a slot for it", plain(name))
            self._assign(wanted, now)
            if self._tell_ready is not None:
                self._tell_ready()
                self._tell_ready = None
        for _ in range(FRAMES_PER_TURN):
            event = self._nimbus.recv_event()
            if event is None:
                return
            try:
                self._take_order_of_nimbus(event, now)
            except ProtocolError as error:
                log.warning("%s", error)

    def _take_order_of_nimbus(self, event: Incoming, now: float) -> None:
        if event.method == "AssignNode":
            self._assign(event.decode(AssignNode), now)
        elif event.method == "Shutdown":
            self._leave(event.decode(Shutdown).grace_secs)
        elif event.method == "FaultsChanged":
            if self._leave_at is None:
                self._faults.look(now)
        else:
            log.warning("%s from Nimbus is not understood", event.method)

    def _assign(self, wanted: AssignNode, now: float) -> None:
        """Drive the slots. Report work that is impossible here to Nimbus, with the reason."""
        possible = {}
        for port, work in wanted.slots.items():
            try:
                if port not in self._supervisor.slots:
                    raise ClusterError(f"{self._parts.node} has no port {port}")
                self._boards.admit(work)
            except ClusterError as error:
                log.error("assignment refused: %s", error)
                self._nimbus.report(
                    SlotChanged(self._parts.node, port, work.topology.id, 0, "failed", 0, now, reason=str(error))
                )
                continue
            possible[port] = work
        self._dispatcher.carry_out(self._supervisor.assign(possible, now, wanted.keep))
        self._keep_spares(now)

    def _take_time(self, now: float) -> None:
        self._forking_parent.tick(now)
        self._faults.tick(now)
        for port, at_secs in list(self._dispatcher.timers.items()):
            if now >= at_secs:
                del self._dispatcher.timers[port]
                self._dispatcher.carry_out(self._supervisor.tick(port, now))
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_SECS
            self._forget_others()
            self._oom_kills.append(process.out_of_memory_kills())
            self._dispatcher.carry_out(self._supervisor.review())
            self._look_for_stuck(now)
            self._keep_spares(now)
            if self._leave_at is None and self._presence.is_gone():
                log.error("the run directory was removed: leaving")
                self._leave(STOP_GRACE_SECS)
        self._leave_if_departed(now)
        if self._leave_at is not None and now >= self._leave_at and not self._supervisor.is_empty:
            raise ClusterError(f"{self._parts.node} leaves workers behind that do not end, not even by SIGKILL")

    def _leave_if_departed(self, now: float) -> None:
        idle = self._supervisor.is_idle
        if self._leave_at is None and self._departure is not None and self._departure.is_over(now, idle):
            log.info("the slots are empty: leaving" if idle else "leaving undrained: Nimbus has not emptied the slots")
            self._leave(STOP_GRACE_SECS)

    def _keep_spares(self, now: float) -> None:
        topologies = self._spares.look(self._supervisor.slots.values(), now)
        try:
            if topologies is not None:
                self._forking_parent.keep_spares(str(self._parts.run_dir.path), topologies)
        except ClusterError as error:
            # It has been killed, and all its spares end.
            log.warning("%s", error)

    def _forget_others(self) -> None:
        assignments = self._supervisor.assignments()
        self._boards.keep_only(assignments)
        self._judge.keep_only({topology_id for topology_id, _ in assignments})

    def _look_for_stuck(self, now: float) -> None:
        """Find workers that live but do not turn their loop: they hold up all others, and are replaced."""
        for port, slot in self._supervisor.slots.items():
            if slot.state is not SlotState.RUNNING or slot.work is None:
                self._progress.forget(port)
                continue
            limit = slot.work.topology.conf["worker_timeout_secs"]
            row = self._boards.look(slot.work)
            still = self._progress.still_secs(port, row.heartbeat_ns, now)
            if limit is not None and still > limit:
                stopped = process.is_stopped(slot.life.pid)
                self._dispatcher.carry_out(self._supervisor.stuck(port, round(still, 1), now, row.at_hand, stopped))

    def _timeout_ms(self) -> int:
        deadlines = [self._sweep_at, self._nimbus.next_deadline(), *self._dispatcher.timers.values()]
        now = time.monotonic()
        others = (self._forking_parent.next_deadline, self._leave_at)
        if self._departure is not None and self._leave_at is None:
            deadlines.append(self._departure.next_deadline)
        deadlines += [at for at in (*others, self._faults.next_deadline(now)) if at is not None]
        return max(0, math.ceil((min(deadlines) - now) * 1000))
