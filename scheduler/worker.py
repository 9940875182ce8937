"""A worker process: wires a worker core to its links, its supervisor and the status board, and turns the loop.

::

    receive frames and acks ─► read board ─► execute ─► core.step, and answer ─► send parcels, credit ─► publish
                                                                         (nothing done? wait for an event)

Guarantees
    * A worker serves one topology, as one incarnation of one slot. It ends with code 0 only when told to stop.
    * What user code raised is told to the supervisor, and its trees are failed, before the process ends.
    * A worker whose topology is no more, or has moved without it, ends by itself (`scheduler.lease`).
    * A peer's death is acted upon within one turn of the loop, or one idle wait of at most 30 ms.

Relies on: being forked by `scheduler.zygote` from a process that never had a ZeroMQ context or a second thread.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import zmq

from squall.engine.assemble import Assembler, Surroundings
from squall.engine.closing import close_tasks
from squall.engine.config import Config
from squall.engine.core import WorkerCore
from squall.engine.errors import ComponentError
from squall.engine.failure import Failure
from squall.engine.parcel import Parcel
from squall.engine.peers import Peers
from squall.engine.plain_text import plain, plain_lines
from squall.engine.plan import ExecutorPlan, Plan
from squall.engine.user_metrics import UserMetrics
from squall.engine.user_text import text_of_error
from squall.ipc.ack_lanes import AckLanes
from squall.ipc.board import READY, Board
from squall.ipc.connection_watch import ConnectionWatch
from squall.ipc.control import ControlClient
from squall.ipc.data_plane import DataPlane
from squall.ipc.frame import opening_of
from squall.ipc.line_file import append_line
from squall.ipc.metric_file import MetricFile
from squall.ipc.rundir import RunDir
from squall.scheduler import blob, process
from squall.scheduler.code_store import CodeStore
from squall.scheduler.executor_watch import ExecutorWatch
from squall.scheduler.fault_points import from_environment, link_shim_from_environment
from squall.scheduler.last_words import read_last_words, write_last_words
from squall.scheduler.lease import Lease
from squall.scheduler.messages import Assignment, SetStatus, WorkerBoot, WorkerFailed, WorkerReady
from squall.scheduler.no_debugger import refuse_breakpoints
from squall.scheduler.sending import Sending
from squall.scheduler.step_aside import StepAside
from squall.scheduler.trial_turn import BoardTrialTurn
from squall.scheduler.worker_board import WorkerBoard
from squall.scheduler.worker_files import WorkerFiles

EXIT_OK, EXIT_CRASHED = 0, 1

_FRAMES_PER_TURN = 64
"""Frames taken in before the executors get their turn: bounds the work of one turn to some ten thousand tuples."""
_IDLE_WAIT_MIN_MS, _IDLE_WAIT_MAX_MS = 1, 30
"""How long an idle worker sleeps before it asks its spouts again. Doubles from the first to the second: 1 ms keeps a
spout that just ran dry responsive, 30 ms keeps an idle worker below 1 % of a core and notices deaths in time."""
_FULL_WAIT_MS = 4
"""While the queue of another worker is full: what it holds by then takes it longer than that, or else it was not full
for long."""
_NO_TASKS: frozenset[int] = frozenset()
_CREDIT_FRAMES = 16
"""A busy worker with nothing to send returns credit for so many frames at once; one that idles for each."""
_IDLE_TURNS_PUBLISHED, _IDLE_TURNS_PER_HEARTBEAT = 3, 7
"""An idle worker publishes its first turns, which settle what is drained, then every seventh: five times a second."""
_LOOK_NS = 2_000_000
"""How often a worker publishes its counters; a busy one looks for control events as often."""
_SAMPLES_NS = 1_000_000_000
"""How often users' gauges and the worker's memory are read, and its lease is looked at."""
_GC_THRESHOLD = 50_000
"""Tuples come and go by reference count; the cycle collector only costs the tuple path (4 % at its default of 700)."""


def plan_of(assignment: Assignment) -> Plan:
    """The engine's view of an assignment."""
    executors = [
        [ExecutorPlan(e.component, e.first_task, e.last_task) for e in worker] for worker in assignment.executors
    ]
    return Plan(executors, [str(slot) for slot in assignment.workers])


class Worker:
    """One worker process. Everything runs on its main thread but executors of blocking bolts."""

    def __init__(self, boot: WorkerBoot) -> None:
        self._boot = boot
        self._name = f"{boot.node}:{boot.port}"
        self._run_dir = RunDir(boot.run_dir)
        self._config = Config(**boot.topology.conf)
        self._faults = from_environment(boot.incarnation)
        self._plan = plan_of(boot.assignment)
        self._peers = Peers(self._plan.n_workers, boot.slot_index)
        self._board = Board.attach(str(self._run_dir.board(boot.topology.id, boot.assignment.version)))
        self._lease = Lease(self._board, boot.slot_index, boot.incarnation)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        shim = link_shim_from_environment(boot.slot_index)
        lanes = AckLanes(self._board.lanes, self._board.n_slots, boot.slot_index, boot.incarnation)
        key = self._run_dir.key()
        self._plane = DataPlane(
            self._context, opening_of(key, boot.topology.id, boot.assignment.version), boot.slot_index,
            boot.incarnation, self._socket_path(boot.node, boot.port, boot.incarnation),
            self._config.link_window_bytes, self._config.arena_bytes, shim,
            # Who breaks links on purpose wants to see what becomes of the acks.
            lanes if shim is None else None, self._config.max_frame_bytes,
        )
        self._control = ControlClient(
            self._run_dir.node_socket(boot.node), key,
            boot.sender, self._context,
        )
        self._poller = zmq.Poller()
        self._supervisor = ConnectionWatch(self._control.socket)
        self._supervisor_gone = False
        for source in (self._plane.inbound, self._control.socket, self._supervisor.source, self._wake_fd):
            self._poller.register(source, zmq.POLLIN)
        self._bounded = self._config.max_crashes is not None or self._config.max_attempts is not None
        self._files = WorkerFiles(self._run_dir, boot, self._plan, self._report_error)
        self._stopping = False
        self._dying = False
        """It ends by an error, and only says what that leaves behind."""
        self._blocked = False
        self._owes_answers = False
        self._step_aside = StepAside()
        self._turn_ns = 0
        self._look_at_ns = 0
        self._active = boot.topology.status == "ACTIVE"
        self._idle_wait_ms = _IDLE_WAIT_MIN_MS
        self._next_rotation_ns = 0
        self._samples_at_ns = 0
        self._rests = False
        """Nothing was done since users' gauges were read."""
        self._metric_file = MetricFile(self._run_dir.metrics(boot.topology.id), boot.slot_index, boot.incarnation)
        self._metrics = UserMetrics(self._metric_file.allocate)
        self._core: WorkerCore
        self._sending: Sending
        self._shared: WorkerBoard

    # ---- start ----

    def open(self) -> None:
        """Load the topology, open its tasks, tell the supervisor."""
        boot = self._boot
        self._pass("worker.open")
        self._peers.update(boot.slot_index, boot.incarnation, True)
        refuse_breakpoints(self._component_at_hand, lambda text: _log(f"{self._name}: {text}"))
        topology = blob.load(CodeStore(self._run_dir.code).get(boot.topology.blob), boot.topology.sys_path)
        around = Surroundings(
            topology_name=boot.topology.name,
            worker=self._name,
            attempt=boot.incarnation,
            now_ns=time.monotonic_ns,
            state_root=str(self._run_dir.topology_state(boot.topology.name)),
            report_error=self._report_error,
            dead_letter=self._dead_letter,
            note_failure=self._files.note_failure,
            journal=self._files.journal,
            trial_turn=BoardTrialTurn(self._board, boot.slot_index, self._bounded),
            wake=self._wake,
            copy=blob.copy_component,
            metrics=self._metrics,
            at_hand=self._board.at_hand(boot.slot_index),
            account=self._board.account,
        )
        self._core = Assembler(topology, self._plan, self._config, boot.slot_index, self._peers, around).build()
        self._core.untracked = self._board.flow(boot.slot_index)
        self._core.take_back_quiet_in(self._board.said_quiet(boot.slot_index))
        self._core.tracking.tell = self._tell_acks
        self._core.tracking.hear = partial(self._plane.take_acks, self._core.tracking.take_acks)
        self._sending = Sending(self._core, self._plane, self._config.batch_tuples)
        self._threads = ExecutorWatch(self._core)
        self._shared = WorkerBoard(self._board, self._core, self._plane, boot.slot_index, boot.incarnation)
        self._follow_peers()
        self._shared.publish_memory(process.rss_bytes(os.getpid()))
        self._files.take_requests(self._core)
        self._shared.publish(worked=True, congested=False)
        # What exists now lives as long as the worker: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(_GC_THRESHOLD, 20, 50)
        self._say_ready()
        self._pass("worker.ready")
        self._core.set_active(self._active)

    # ---- the loop ----

    def run(self) -> None:
        """Turn until told to stop. Raises TaskCrashed and LeaseEnded."""
        core, plane, shared = self._core, self._plane, self._shared
        sending = self._sending
        plane.set_awake(True)
        while not self._stopping:
            self._turn_ns = time.monotonic_ns()
            came = self._take_in()
            worked = core.step(self._pause) or came
            self._pass("worker.step", worked)
            now_ns = time.monotonic_ns()
            due = now_ns >= self._look_at_ns
            slots = sending.end_of_turn(worked, due)
            self._send(None if self._blocked else slots)
            shared.publish_full()
            if core.pressure.stalled:
                plane.park()
            # One idle turn may be the wait for an answer, which would have brought the credit with it.
            plane.send_credit(at_least=1 if sending.idle_turns > 1 else _CREDIT_FRAMES)
            self._pass("worker.credit", worked)
            if worked:
                self._rests = False
                shared.has_taken_turns = True
                # Or it would sleep through the turns that say that it is quiet, up to a bolt's next tick.
                self._idle_wait_ms = _IDLE_WAIT_MIN_MS
                if not due:
                    continue
            idle = sending.idle_turns
            if due if idle <= _IDLE_TURNS_PUBLISHED else idle % _IDLE_TURNS_PER_HEARTBEAT == 0:
                self._sample(worked, now_ns)
                shared.publish(worked, self._blocked)
                self._look_at_ns = now_ns + _LOOK_NS
                self._pass("worker.publish", worked)
                self._rotate()
            self._files.turn(core)
            self._wait(worked)

    def _pass(self, point: str, worked: object = True) -> None:
        """Pass a fault point, unless the turn did nothing."""
        if self._faults is not None and worked:
            self._faults.hit(point)

    def _take_in(self) -> bool:
        """Take in frames and acks and execute them; whether there were any. Raises TaskCrashed."""
        core = self._core
        frames, acks = self._plane.receive(core.receive, _FRAMES_PER_TURN), core.tracking.hear()
        # After receiving: a peer that has sent to an acker's replacement knows of it, so this worker must too
        # before it acks what came, or the acks would go to the dead one.
        self._follow_peers()
        self._pass("worker.receive", frames + acks)
        if frames or acks:
            self._owes_answers = True
            (core.attend if frames else core.settle)()
        return frames + acks > 0

    def _pause(self) -> bool:
        """The middle of a turn: answer, and, unless the turn is a long one already, look whether there is news."""
        if self._owes_answers:
            self._owes_answers = False
            self._send(self._sending.answer())
        return time.monotonic_ns() - self._turn_ns < _LOOK_NS and self._take_in()

    def _tell_acks(self, slot: int, acks: Mapping[int, int], masks: Mapping[int, int]) -> bool:
        told = self._plane.tell_acks(slot, acks, masks)
        self._pass("worker.acks", told)
        return told

    def _send(self, slots: set[int] | None = None) -> None:
        """Send to these peers, by default all, what there is for them and their links have credit for."""
        if slots is not None and not slots:
            return
        core, plane, shared = self._core, self._plane, self._shared
        others_congested = shared.others_congested()
        core.others_are_full(shared.full_elsewhere() if others_congested else _NO_TASKS)
        blocked = self._blocked and slots is not None
        for slot in core.close_parcels(slots):
            while plane.has_credit(slot) and core.has_parcel(slot):
                self._send_parcel(slot, core.take_parcel(slot))
            blocked = blocked or core.has_parcel(slot)
        if core.keeps_back:
            blocked = True
        if blocked:
            core.measure_waiting()
        self._blocked = blocked
        core.congested = blocked or others_congested

    def _send_parcel(self, slot: int, parcel: Parcel) -> None:
        """What cannot be sent is put back to be cut, and at last its tuple's failure. Raises TaskCrashed by that."""
        core = self._core
        try:
            too_big = self._plane.send(slot, parcel, 2 * core.frame_bytes)
        except (ComponentError, MemoryError) as error:
            if not parcel.rows:
                raise
            crash = core.not_sent(slot, parcel, error)
            if crash is None:
                return
            if self._config.on_error == "crash" and not self._dying:
                raise crash from error
            self._report_error(crash.component, crash.task, str(crash))
            return
        if too_big:
            core.put_back(slot, parcel, too_big)
            return
        self._step_aside()
        self._pass("worker.send")

    def _follow_peers(self) -> None:
        """Act on what the board says of other workers: connect to the ready, replay what the dead held."""
        for slot, incarnation, state in self._shared.changed_peers():
            alive = WorkerBoard.is_alive(state)
            if not alive or incarnation != self._peers.incarnation(slot):
                self._plane.disconnect(slot)
                self._plane.fence(slot, incarnation if alive else incarnation + 1)
            self._core.peer_changed(slot, incarnation, alive, self._last_words(slot, incarnation - alive))
            if state == READY and not self._plane.is_connected(slot):
                place = self._boot.assignment.workers[slot]
                self._shared.connected(slot)
                self._plane.connect(slot, incarnation, self._socket_path(place.node, place.port, incarnation))

    def _socket_path(self, node: str, port: int, incarnation: int) -> Path:
        """Where an incarnation of a worker of this assignment listens."""
        boot = self._boot
        return self._run_dir.worker_socket(boot.topology.id, boot.assignment.version, node, port, incarnation)

    def _last_words(self, slot: int, incarnation: int) -> dict[int, Failure] | None:
        """What another worker, dead by now, says that it ended by; None if it ended without a word."""
        if not self._board.explained(slot, incarnation):
            return None
        return read_last_words(self._run_dir, self._boot.topology.id, slot, incarnation)

    def _rotate(self) -> None:
        now = time.monotonic_ns()
        if now >= self._next_rotation_ns:
            self._next_rotation_ns = now + round(self._config.message_timeout_secs * 1e9)
            self._core.tracking.rotate()
            self._plane.probe()

    def _sample(self, worked: bool, now_ns: int) -> None:
        """Read users' gauges now and then, and before the worker says that it rests: drained, it shows the last."""
        due = now_ns >= self._samples_at_ns
        if due:
            self._lease.check()
        self._threads.look(now_ns / 1e9)
        if due or not (worked or self._rests):
            self._files.flush()
            self._metrics.sample(self._gauge_raised)
            self._rests = not worked
        if due:
            self._samples_at_ns = now_ns + _SAMPLES_NS
            self._shared.publish_memory(process.rss_bytes(os.getpid()))

    def _wait(self, worked: bool) -> None:
        """Take in control events; when the turn did nothing, sleep until something happens or may happen."""
        if worked:
            timeout_ms = 0
        else:
            timeout_ms = self._idle_wait_ms
            # No event says that a queue of another worker is no longer full.
            longest_ms = _FULL_WAIT_MS if self._core.pressure.full_elsewhere else _IDLE_WAIT_MAX_MS
            self._idle_wait_ms = min(2 * timeout_ms, longest_ms)
            deadline = self._core.next_deadline_ns
            if deadline is not None:
                timeout_ms = max(0, min(timeout_ms, -(-(deadline - time.monotonic_ns()) // 1_000_000)))
        for source, _ in self._poll(timeout_ms):
            if source == self._wake_fd:
                os.eventfd_read(self._wake_fd)
            elif source is self._control.socket:
                self._take_control()
            elif source is self._supervisor.source:
                self._follow_supervisor()

    def _poll(self, timeout_ms: int) -> list[tuple[Any, int]]:
        """What is there, now or before the time is up. Others must know of a sleeper: acks in lanes do not wake it."""
        plane = self._plane
        plane.polled()
        if not timeout_ms:
            return self._poller.poll(0)
        plane.set_awake(False)
        events = self._poller.poll(0 if plane.has_acks else timeout_ms)
        plane.set_awake(True)
        return events

    def _follow_supervisor(self) -> None:
        """A new supervisor can only answer whom it has heard of."""
        for connected in self._supervisor.changes():
            if connected and self._supervisor_gone:
                self._say_ready()
            self._supervisor_gone = not connected

    def _say_ready(self) -> None:
        self._control.send_event(WorkerReady(self._boot.port, self._boot.incarnation, os.getpid()))

    def _take_control(self) -> None:
        while (event := self._control.recv_event()) is not None:
            if event.method == "SetStatus":
                self._core.set_active(event.decode(SetStatus).status == "ACTIVE")
                # Who waits for the spouts to rest hears of it at once.
                self._sending.idle_turns = 0
            elif event.method == "StopWorker":
                self._stopping = True

    def _wake(self) -> None:
        """Any thread."""
        os.eventfd_write(self._wake_fd, 1)

    # ---- telling ----

    def _component_at_hand(self) -> str:
        task = self._board.at_hand(self._boot.slot_index)[0]
        return f"{self._plan.task_component[task]}[{task}]" if task in self._plan.task_component else "a component"

    def _report_error(self, component: str, task: int, text: str) -> None:
        _log(f"error reported by {component}[{task}]: {text}")

    def _gauge_raised(self, component: str, task: int, error: BaseException) -> None:
        self._report_error(component, task, text_of_error(error))

    def _dead_letter(self, component: str, task: int, message_id: Any, values: Any, failure: Failure) -> None:
        self._files.dead_letter(component, task, message_id, values, failure)

    def fail(self, component: str, task: int, error: str, text: str) -> None:
        """Last words: to the log, to the supervisor, and to the trees' ackers."""
        _log(f"{self._name}: {error}\n{text}")
        boot = self._boot
        self._control.send_event(WorkerFailed(boot.port, boot.incarnation, component, task, error, text))

    def send_last(self) -> None:
        """Send what the crash left behind: the failures of the trees at hand, so that they are replayed at once."""
        self._dying = True
        tracking, boot = self._core.tracking, self._boot
        fails = dict(self._core.outbox.fails)
        try:
            write_last_words(self._run_dir, boot.topology.id, boot.slot_index, boot.incarnation, fails)
            explained = True
        except OSError as error:
            # The trees fail all the same: by the frames that leave now, or as those of a worker that died.
            _log(f"{self._name}: no last words: {plain(error)}")
            explained = False
        tracking.charge()
        tracking.settle()
        self._core.end_attempts()
        # Before the death is on the board: others then know that it was none of their tuples' doing.
        if explained:
            self._shared.explain(bool(fails) and self._bounded)
        self._send()
        self._shared.publish(worked=True, congested=False)
        self._files.flush()

    def close_tasks(self) -> int:
        """Call `close` and `cleanup`; the exit code."""
        self._pass("worker.stop")
        self._core.end_attempts()
        self._files.flush()
        code = EXIT_OK
        for crash in close_tasks(self._core):
            code = EXIT_CRASHED
            self.fail(crash.component, crash.task, str(crash), crash.traceback_text)
            path = self._run_dir.close_errors(self._boot.topology.id, self._boot.slot_index)
            append_line(path, json.dumps(str(crash)))
        return code

    def close(self) -> None:
        """Close sockets; waits briefly for what was sent."""
        self._supervisor.close()
        self._control.close()
        self._plane.close()
        self._context.term()
        self._metric_file.close()
        os.close(self._wake_fd)


def _log(text: str) -> None:
    sys.stderr.write(plain_lines(text) + "\n")
    sys.stderr.flush()
