"""Turns frames into events for Nimbus's decisions, and their instructions into stored rows and frames.

Guarantees
    * A request is answered after its consequences are on disk, and once. A submission is carried out whole or refused.
    * Workers and files of a topology that the store does not know are stopped or removed only if an operator asks.
    * Tasks' state of an earlier topology is removed only after the topology that begins anew is stored, and is out of
      the way before any worker starts.
    * A replacement is stored, or refused, before anything happens to the topology that it replaces. From then on it
      needs nobody but Nimbus.
    * A malformed frame, from any sender, is answered with an error or dropped, and changes nothing.
    * If the store fails, the client is told, and the error leaves `serve`: Nimbus ends, and the next one starts from
      the files on disk.

Relies on: `scheduler.nimbus.decisions` for every decision. Thread: Nimbus's loop.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from squall.engine.errors import ClusterError, ProtocolError, SquallError, UsageError
from squall.ipc.control import ControlServer, ErrorKind, Incoming, NotStarted
from squall.ipc.rundir import RunDir
from squall.scheduler.common.environment import forget_environment, keep_environment
from squall.scheduler.common.messages import (
    AssignNode,
    ForgetUnknown,
    GetCluster,
    HealFaults,
    InjectFault,
    KillTopology,
    NamedTopology,
    RebalanceTopology,
    RegisterSupervisor,
    Shutdown,
    SlotChanged,
    SubmitTopology,
    SupervisorHeartbeat,
    TopologyRecord,
)
from squall.scheduler.faults.in_force import FaultsTold
from squall.scheduler.faults.sentence import parse
from squall.scheduler.nimbus.board_watch import BoardWatch, LivingWorkers
from squall.scheduler.nimbus.books import Books, StoreError
from squall.scheduler.nimbus.decisions import Instructions, Nimbus
from squall.scheduler.nimbus.injection import Injection
from squall.scheduler.nimbus.instruction import (
    DeleteTopology,
    DropSuccessor,
    EndWorker,
    NimbusInstruction,
    Note,
    RemoveBoard,
    RemoveUnknown,
    SendAssignNode,
    StoreChange,
    StoreTopology,
)
from squall.scheduler.nimbus.nimbus_files import NimbusFiles
from squall.scheduler.nimbus.store import store_all
from squall.scheduler.nimbus.topology_life import TopologyLife

FRAMES_PER_TURN = 1000
"""Frames handled between two looks at signals and deadlines, which a flood must not delay."""

_CHANGES = frozenset({"submit_topology", "activate", "deactivate", "rebalance", "reset", "forget_unknown"})
"""Requests that are refused once the cluster is about to stop."""

SWEEP_RETRY_SECS = 0.1
"""Between two looks for unused code: a submission takes some milliseconds from its first file to Nimbus's answer."""

Handler = Callable[[Any, float, Incoming], msgspec.Struct]

log = logging.getLogger(__name__)


class NimbusService:
    """Connects decisions, store, boards and socket."""

    def __init__(
        self, run_dir: RunDir, store: Books, server: ControlServer, on_shutdown: Callable[[float], None]
    ) -> None:
        self._run_dir = run_dir
        self._files = NimbusFiles(run_dir)
        self._store = store
        self._server = server
        self._on_shutdown = on_shutdown
        self._sessions: dict[str, bytes] = {}
        """Node -> the session in which its supervisor has registered."""
        self._closing = False
        self._stops_at: float | None = None
        self._grace_secs = 0.0
        lives = [TopologyLife(*stored) for stored in store.topologies()]
        deleted = store.deleted()
        unknown = self._files.tidy(lives, deleted)
        for topology_id in sorted(unknown):
            log.error("%s is not in the store: what it runs and has on disk is left alone", topology_id)
        self.nimbus = nimbus = Nimbus(
            self._files.make_board, self._files.set_state_aside, lives, store.next_number(), time.monotonic(), deleted,
            unknown,
        )
        self._workers = LivingWorkers(run_dir)
        self._watch = BoardWatch(self.nimbus, self._files, self._workers)
        self._sweep_at: float | None = None
        """When code that may have become unused is looked for."""
        self._sweep_code()
        self.faults = Injection(
            run_dir, self.nimbus, self._files,
            lambda node, event: server.send_event(f"supervisor:{node}", event),
        )
        self._requests: dict[str, tuple[type[msgspec.Struct], Handler]] = {
            "submit_topology": (SubmitTopology, self._submit),
            "get_topology": (NamedTopology, lambda asked, *_: nimbus.topology(asked.name)),
            "get_cluster": (GetCluster, lambda *_: replace(nimbus.cluster(), refused_frames=server.refused)),
            "activate": (NamedTopology, lambda order, *_: self._change(self._activate(order.name))),
            "deactivate": (NamedTopology, lambda order, *_: self._change(nimbus.set_status(order.name, "INACTIVE"))),
            "kill_topology": (KillTopology, lambda order, now, _: self._change(nimbus.kill(order, now))),
            "rebalance": (RebalanceTopology, lambda order, now, _: self._change(nimbus.rebalance(order, now))),
            "reset": (NamedTopology, lambda order, now, _: self._change(nimbus.reset(order.name, now))),
            "forget_unknown": (ForgetUnknown, self._forget_unknown),
            "inject": (InjectFault, lambda asked, now, _: FaultsTold(self.faults.inject(parse(asked.line), now))),
            "heal": (HealFaults, lambda asked, now, _: FaultsTold(self.faults.heal(asked.targets, now))),
            "shutdown": (Shutdown, self._shutdown),
            "register_supervisor": (RegisterSupervisor, self._register),
        }
        """Method -> what its frame holds, and the handler of that, whose result is the answer."""
        self._events: dict[str, tuple[type[Any], Callable[[Any, float], Instructions]]] = {
            "SupervisorHeartbeat": (SupervisorHeartbeat, nimbus.heartbeat),
            "SlotChanged": (SlotChanged, nimbus.slot_changed),
        }

    def _activate(self, name: str) -> tuple[TopologyRecord, Instructions]:
        """Let a topology's spouts emit, also after a fault of its set-up."""
        record, instructions = self.nimbus.set_status(name, "ACTIVE")
        self._run_dir.stopped(record.id).unlink(missing_ok=True)
        return record, instructions

    def serve(self) -> bool:
        """Handle the frames that have arrived. False if there may be more."""
        for _ in range(FRAMES_PER_TURN):
            incoming = self._server.recv()
            if incoming is None:
                return True
            # Read the clock for each frame: one that arrived while others were handled must not seem older than it is.
            now = time.monotonic()
            if incoming.kind == "event":
                self._take_event(incoming, now)
            else:
                self._answer(incoming, now)
        return False

    def tick(self, now: float) -> None:
        """Do all that is due."""
        at_rest = self._watch.at_rest(now)
        for topology_id in at_rest:
            self._carry_out(self.nimbus.drained(topology_id, now))
        self._stop_when_at_rest(at_rest, now)
        for steps in self._watch.look(now):
            self._carry_out(steps)
        self._carry_out(self.nimbus.tick(now))
        if self._sweep_at is not None and now >= self._sweep_at:
            self._sweep_code()
        self.faults.tick(now)

    def next_deadline(self) -> float | None:
        """When `tick` is due next, unless a frame comes first."""
        deadlines = (
            self.nimbus.next_deadline(), self._watch.next_deadline(), self._sweep_at, self._stops_at,
            self.faults.next_deadline(time.monotonic()),
        )
        return min((at for at in deadlines if at is not None), default=None)

    def _stop_when_at_rest(self, at_rest: Sequence[str], now: float) -> None:
        """Stop the cluster, if it shall stop and all topologies are at rest or the limit has passed."""
        if self._stops_at is None:
            return
        if now >= self._stops_at or all(life.record.id in at_rest for life in self.nimbus.draining()):
            self._stops_at = None
            self._on_shutdown(self._grace_secs)

    def begin_shutdown(self, grace_secs: float) -> None:
        """Tell every supervisor to leave. Requests are refused from now on. May be called again, with less grace."""
        # First end faults: a process that is stopped does not hear that it shall leave.
        self.faults.end(time.monotonic())
        self._closing = True
        for node in self.nimbus.supervisor_pids:
            if not self._server.send_event(f"supervisor:{node}", Shutdown(grace_secs)):
                log.warning("%s cannot be told to leave: its supervisor is not connected", node)

    # ---- frames ----

    def _take_event(self, incoming: Incoming, now: float) -> None:
        try:
            if incoming.method not in self._events:
                raise ProtocolError(f"Nimbus takes no event {incoming.method!r} (from {incoming.peer})")
            body, decide = self._events[incoming.method]
            event = incoming.decode(body)
            if self._counts(incoming, event.node):
                self._carry_out(decide(event, now))
        except ProtocolError as error:
            log.warning("%s", error)

    def _counts(self, incoming: Incoming, node: str) -> bool:
        """Whether an event is not from a supervisor that has died: its successor, once registered, speaks for the
        node, and has reported all that the dead one could."""
        session = incoming.nonce.session
        return self._sessions.get(node, session) == session

    def _answer(self, incoming: Incoming, now: float) -> None:
        try:
            if self._closing and incoming.method != "shutdown":
                raise ClusterError("Nimbus is shutting down")
            if self._stops_at is not None and incoming.method in _CHANGES:
                raise ClusterError(f"the cluster is about to stop: {incoming.method} is refused")
            if incoming.method not in self._requests:
                raise ClusterError(f"Nimbus answers no {incoming.method!r}; it answers {', '.join(self._requests)}")
            body, handle = self._requests[incoming.method]
            self._server.reply(incoming, handle(incoming.decode(body), now, incoming))
        except UsageError as error:
            self._server.reply_error(incoming, str(error), "UsageError")
        except SquallError as error:
            kind: ErrorKind = "NotStarted" if isinstance(error, NotStarted) else "ClusterError"
            self._server.reply_error(incoming, str(error), kind)
            if isinstance(error, StoreError):
                raise

    def _submit(self, request: SubmitTopology, now: float, _: Incoming) -> TopologyRecord:
        try:
            self._files.check_code(request)
            return self._accept(request, now)
        except SquallError:
            self._sweep_code()
            raise

    def _accept(self, request: SubmitTopology, now: float) -> TopologyRecord:
        token = os.urandom(4).hex()
        topology_id = self.nimbus.accepts(request, token)
        try:
            if request.env:
                keep_environment(self._run_dir, topology_id, request.env)
            decided = self.nimbus.submit(request, now, time.time(), token)
        except ClusterError:
            self._files.put_state_back(request.name, topology_id)
            forget_environment(self._run_dir, topology_id)
            raise
        # If the store fails, Nimbus ends, and the next one sees in the store whether to put the state back.
        return self._change(decided)

    def _change(self, decided: tuple[TopologyRecord, Instructions]) -> TopologyRecord:
        """Carry out an order that changes one topology; the answer is its record."""
        record, steps = decided
        self._carry_out(steps)
        return record

    def _forget_unknown(self, _: ForgetUnknown, now: float, incoming: Incoming) -> ForgetUnknown:
        ids, steps = self.nimbus.forget_unknown(now)
        self._carry_out(steps)
        return ForgetUnknown(ids)

    def _shutdown(self, request: Shutdown, now: float, incoming: Incoming) -> Shutdown:
        for name in ("grace_secs", "drain_secs"):
            secs = getattr(request, name)
            if not (math.isfinite(secs) and secs >= 0):
                raise UsageError(f"{name} is {secs}; allowed: a number of seconds from 0 up")
        log.info("%s asks for shutdown, after a drain of at most %g s", incoming.peer, request.drain_secs)
        # Faults would keep it from draining.
        self.faults.end(now)
        if not request.drain_secs:
            self._on_shutdown(request.grace_secs)
            return request
        self._grace_secs = request.grace_secs
        until = now + request.drain_secs
        self._stops_at = until if self._stops_at is None else min(until, self._stops_at)
        self._carry_out(self.nimbus.stop_spouts())
        self._stop_when_at_rest((), now)
        return request

    def _register(self, request: RegisterSupervisor, now: float, incoming: Incoming) -> AssignNode:
        steps = self.nimbus.register_supervisor(request, now)
        self._sessions[request.node] = incoming.nonce.session
        self._carry_out(steps)
        return self.nimbus.assign_node(request.node)

    # ---- instructions ----

    def _carry_out(self, instructions: Iterable[NimbusInstruction]) -> None:
        """Store changes in one transaction, then tell the processes concerned."""
        steps = list(instructions)
        store_all(self._store, [step for step in steps if isinstance(step, StoreChange)])
        for step in steps:
            self._tell(step)

    def _tell(self, step: NimbusInstruction) -> None:
        match step:
            case SendAssignNode(node):
                self._send_assignment(node)
            case RemoveBoard(topology_id, version):
                self._files.remove_board(topology_id, version)
            case DeleteTopology(topology_id):
                self._files.remove_accounts(topology_id)
                self._sweep_code()
            case DropSuccessor(topology_id):
                forget_environment(self._run_dir, topology_id)
                self._sweep_code()
            case RemoveUnknown(topology_id):
                self._files.remove_unknown(topology_id)
                self._sweep_code()
            case EndWorker(assignment, slot):
                self._workers.end(assignment, slot)
            case StoreTopology(record):
                self._files.discard_state(record)
            case Note(text, level):
                log.log(level, "%s", text)

    def _send_assignment(self, node: str) -> None:
        try:
            if not self._server.send_event(f"supervisor:{node}", self.nimbus.assign_node(node)):
                log.warning("%s is not connected: it hears of its assignment when it registers again", node)
        except UsageError as error:
            # Submissions have a size limit, but a node may get many large ones.
            log.error("%s cannot be told its assignment: %s", node, error)

    def _sweep_code(self) -> None:
        """Remove code that no topology needs, now or, while a submission is under way, soon."""
        # An unknown topology may need any code: an operator's order to forget it asks again.
        done = bool(self.nimbus.unknown) or self._files.keep_code(self.nimbus.cluster().topologies)
        self._sweep_at = None if done else time.monotonic() + SWEEP_RETRY_SECS
