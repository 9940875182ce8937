"""A worker process: gives a turn (`engine.core.turn`) its links, its board and its clock, and runs it in a loop.

::

    turn ─► publish, now and then ─► files ─► control events (nothing done? wait for an event) ─► turn ...

Guarantees
    * A worker serves one topology, as one incarnation of one slot. It ends with code 0 only when told to stop.
    * If user code raises, the supervisor is told and the trees at hand are failed before the process ends.
    * A worker whose topology was removed, or has moved without it, ends by itself (`scheduler.worker.self_watch`).
    * A worker reacts to a peer's death within one turn, or one idle wait of at most 30 ms.

Relies on: being forked by `scheduler.forking.parent` from a process that never had a ZeroMQ context or a second thread.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import zmq

from squall.engine.api.config import Config
from squall.engine.api.plan import Plan
from squall.engine.api.topology import Topology
from squall.engine.api.user_metrics import UserMetrics
from squall.engine.clock import wall_ns
from squall.engine.core.assemble import Assembler, close_tasks
from squall.engine.core.surroundings import Surroundings
from squall.engine.core.turn import IDLE_WAIT_MAX_MS, Turn
from squall.engine.core.worker_core import WorkerCore
from squall.engine.foreign.text import plain, plain_lines
from squall.engine.report.failure_log import Repeats, is_told
from squall.engine.tracking.peers import Peers
from squall.ipc.ack_rings import AckRings
from squall.ipc.board import Board
from squall.ipc.control import ConnectionWatch, Context, ControlClient
from squall.ipc.data_plane import DataPlane, PlaneAddress, PlaneLimits
from squall.ipc.frame import opening_of
from squall.ipc.metric_file import MetricFile
from squall.ipc.private import append_line
from squall.ipc.rundir import RunDir
from squall.scheduler.common import blob, process
from squall.scheduler.common.environment import UserLogging, apply_logging_settings
from squall.scheduler.common.messages import Assignment, SetStatus, WorkerBoot, WorkerFailed, WorkerReady
from squall.scheduler.records.failure_file import times_lately, write_last_words, write_stopped
from squall.scheduler.worker.own_faults import WorkerFaults
from squall.scheduler.worker.own_watches import WorkerWatches
from squall.scheduler.worker.self_watch import ExecutorWatch, Lease, Opening
from squall.scheduler.worker.spout_files import WorkerFiles
from squall.scheduler.worker.worker_board import BoardTrialPermit, WorkerBoard, explanation_of
from squall.scheduler.worker.worker_metrics import MetricsConsumers, StreamCounts

EXIT_OK, EXIT_CRASHED = 0, 1

_SAMPLES_NS = 1_000_000_000
"""Between two readings of users' gauges, the worker's memory and its lease: a second is fresh enough for reports."""
_LEASE_LOOK_SECS = 0.001
"""Between two looks of a new worker whether its lease has begun: by now it has, as a rule."""
_GC_THRESHOLD = 50_000
"""Allocations between two runs of the cycle collector: reference counts free tuples, and the default of 700 costs the
tuple path 4 %."""


def plan_of(assignment: Assignment) -> Plan:
    """Turn an assignment into the engine's plan."""
    return Plan(assignment.executors, [str(slot) for slot in assignment.workers])


class Worker:
    """One worker process. Thread: main; executors of blocking bolts have their own."""

    def __init__(self, boot: WorkerBoot) -> None:
        self._boot = boot
        self._name = f"{boot.node}:{boot.port}"
        self._run_dir = RunDir(boot.run_dir)
        self._config = Config(**boot.topology.conf)
        self._plan = plan_of(boot.assignment)
        self._peers = Peers(self._plan.n_workers, boot.slot_index)
        self._board = Board.attach(self._run_dir.board(boot.topology.id, boot.assignment.version))
        self._broken = WorkerFaults(self._run_dir, boot, self._board, _log)
        self._lease = Lease(self._board, boot.slot_index, boot.incarnation)
        self._opening = Opening(
            partial(self._board.set_opening, boot.slot_index, boot.incarnation), time.monotonic_ns
        )
        self._context: Context = zmq.Context()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._plane = DataPlane(
            self._context,
            PlaneAddress(
                opening_of(boot.topology.id, boot.assignment.version), boot.slot_index, boot.incarnation,
                boot.socket,
            ),
            PlaneLimits(self._config.link_window_bytes, self._config.arena_bytes, self._config.max_frame_bytes),
            AckRings(self._board.rings, self._board.n_slots, boot.slot_index, boot.incarnation),
        )
        self._control = ControlClient(
            self._run_dir.node_socket(boot.node), self._run_dir.key(), boot.sender, self._context,
        )
        self._poller = zmq.Poller()
        self._supervisor = ConnectionWatch(self._control.socket)
        self._supervisor_gone = False
        plane, control = self._plane, self._control
        for source in (plane.inbound, control.socket, self._supervisor.source, self._wake_fd):
            self._poller.register(source, zmq.POLLIN)
        self._bounded = self._config.max_crashes is not None or self._config.max_attempts is not None
        explanation = explanation_of(self._board, boot.slot_index, boot.incarnation - 1)
        self._files = WorkerFiles(self._run_dir, boot, self._plan, self._report_error, explanation)
        self._stopping = False
        self._told = Repeats()
        self._active = boot.topology.status == "ACTIVE"
        self._samples_at_ns = 0
        self._rests = False
        """Whether the worker has been idle since it read users' gauges."""
        self._metric_file = MetricFile(self._run_dir.metrics(boot.topology.id), boot.slot_index, boot.incarnation)
        self._metrics = UserMetrics(self._metric_file.allocate)
        self._consumers = MetricsConsumers(self._run_dir, boot, self._config, self._report_error)
        self._core: WorkerCore
        self._shared: WorkerBoard
        self._turn: Turn

    # ---- start ----

    def open(self, loaded: Topology | None) -> None:
        """Load the topology unless it is `loaded` already, open its tasks, tell the supervisor. Raises LeaseEnded."""
        boot = self._boot
        self._peers.update(boot.slot_index, boot.incarnation, True)
        spoilt = self._broken.spoils_code()
        topology = loaded if loaded and not spoilt else blob.load_code(boot.run_dir, boot.topology, spoilt)
        if isinstance(topology.logging, UserLogging):
            topology.logging.apply()
        apply_logging_settings(self._config, topology=boot.topology.name, worker=self._name)
        around = Surroundings(
            topology_name=boot.topology.name,
            worker=self._name,
            attempt=boot.incarnation,
            now_ns=time.monotonic_ns,
            wall_ns=wall_ns,
            state_root=str(self._run_dir.topology_state(boot.topology.name)),
            report_error=self._report_error,
            dead_letter=partial(self._files.dead_letter, topology),
            note_failures=self._files.note_failures,
            stop=partial(write_stopped, self._run_dir, boot.topology.id),
            journal=self._files.journal,
            trial_permit=BoardTrialPermit(self._board, boot.slot_index, self._bounded),
            wake=self._wake,
            copy=blob.copy_component,
            opening=self._open_task,
            metrics=self._metrics,
            at_hand=self._board.at_hand(boot.slot_index),
            account=self._board.account,
            untracked=self._board.flow(boot.slot_index),
            said_quiet=self._board.said_quiet(boot.slot_index),
            text_hash=hash,
            processors=len(os.sched_getaffinity(0)),
        )
        while not self._lease.has_begun(os.getpid()):
            # Before any task opens its files, and before the first word on the board.
            time.sleep(_LEASE_LOOK_SECS)
        self._core = Assembler(topology, self._plan, self._config, boot.slot_index, self._peers, around).build()
        self._opening.ended(self._core)
        self._threads = ExecutorWatch(self._core)
        self._shared = WorkerBoard(self._board, self._core, self._plane, self._run_dir, boot)
        self._turn = Turn(
            self._core, self._plane, self._shared, self._config, time.monotonic_ns, StepAside(),
        )
        self._broken.begin(self._plane, self._core)
        self._watches = WorkerWatches(self._run_dir, boot, self._board, self._core)
        self._streams = StreamCounts(self._core, self._metric_file.allocate)
        self._turn.follow_peers()
        self._shared.publish_memory(process.rss_bytes(os.getpid()))
        self._files.take_requests(self._core)
        self._shared.publish(acted=True, congested=False)
        # Objects that exist now live as long as the worker: exempt them from the collector.
        gc.collect()
        gc.freeze()
        gc.set_threshold(_GC_THRESHOLD, 20, 50)
        self._say_ready()
        self._consumers.start()
        self._core.set_active(self._active)
        self._follow_stop()

    def _follow_stop(self) -> None:
        """Stop the spouts if some worker has found a fault of the set-up, and go on once an operator has said so."""
        stopped = self._run_dir.stopped(self._boot.topology.id).exists()
        for task in self._core.spout_tasks.values():
            if task.pending.stopped != stopped:
                task.pending.stop(stopped)

    def _open_task(self, task: int) -> None:
        self._opening.begin(task)
        self._broken.opening(task)

    # ---- the loop ----

    def run(self) -> None:
        """Run turns until told to stop. Raises TaskCrashed and LeaseEnded."""
        turn, shared = self._turn, self._shared
        turn.get_up()
        while not self._stopping:
            worked = turn.run()
            if worked:
                self._rests = False
            if turn.acted:
                shared.has_acted = True
            if turn.shows:
                self._sample(turn.acted, turn.ended_ns)
                shared.publish(turn.acted, turn.blocked)
            elif worked:
                continue
            self._files.tick(self._core)
            self._wait()
            # After the wait, which may have been long: faults that began meanwhile hit the tuple that ended it.
            self._broken.look()
            self._watches.look()

    def _sample(self, acted: bool, now_ns: int) -> None:
        """Read users' gauges once a second, and before the worker publishes that it is idle: reports show the last."""
        due = now_ns >= self._samples_at_ns
        if due:
            self._lease.check()
        self._threads.look(now_ns / 1e9)
        self._opening.look()
        if due or not (acted or self._rests):
            self._files.flush()
            self._metrics.sample(self._report_error)
            self._streams.publish()
            self._rests = not acted
        if due:
            self._samples_at_ns = now_ns + _SAMPLES_NS
            self._follow_stop()
            self._shared.publish_memory(process.rss_bytes(os.getpid()))

    def _wait(self) -> None:
        """Take in control events; when the turn did nothing, sleep until something happens or may happen."""
        timeout_ms = self._turn.lie_down()
        if self._broken.is_active or self._watches.is_active:
            timeout_ms = min(timeout_ms, IDLE_WAIT_MAX_MS)
        events: list[tuple[Any, int]] = self._poller.poll(timeout_ms)
        self._turn.get_up()
        for source, _ in events:
            if source == self._wake_fd:
                os.eventfd_read(self._wake_fd)
            elif source is self._control.socket:
                self._take_control()
            elif source is self._supervisor.source:
                self._follow_supervisor()

    def _follow_supervisor(self) -> None:
        """Introduce the worker to a new supervisor, which can only send to workers that it has heard of."""
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
                # Publish at once: a client may be waiting until the spouts are at rest.
                self._turn.stir()
            elif event.method == "StopWorker":
                self._stopping = True

    def _wake(self) -> None:
        """Wake the loop. Thread: any."""
        os.eventfd_write(self._wake_fd, 1)

    # ---- telling ----

    def _report_error(self, component: str, task: int, text: str) -> None:
        if (line := self._told.error_line(component, task, text, time.monotonic_ns())) is not None:
            _log(line)

    def fail(self, error: str, text: str) -> None:
        """Say why the worker ends: to the log and to the supervisor."""
        boot = self._boot
        times = times_lately(self._run_dir, boot.topology.id, error)
        if is_told(times):
            _log(f"{self._name}: {error}" + (f"\n{text}".rstrip() if times == 1 else f" (as before, {times:,} times)"))
        self._control.send_event(WorkerFailed(boot.port, boot.incarnation, error, text))

    def send_last(self) -> None:
        """Send the failures of the trees at hand, so that their messages are replayed at once."""
        boot = self._boot
        fails = dict(self._core.outbox.fails)
        try:
            write_last_words(self._run_dir, boot.topology.id, boot.slot_index, boot.incarnation, fails)
            explained = True
        except OSError as error:
            # The trees fail all the same: by the frames sent below, or because the worker died.
            _log(f"{self._name}: no last words: {plain(error)}")
            explained = False
        self._core.tracking.charge()
        self._turn.settle()
        self._core.end_attempts()
        # Before the death is on the board: peers then know that none of their tuples caused it.
        if explained:
            self._shared.explain(any(failure.accuses for failure in fails.values()) and self._bounded)
        self._turn.send_last()
        self._shared.publish(acted=True, congested=False)
        self._files.flush()

    def close_tasks(self) -> int:
        """Call `close` and `cleanup`; the exit code."""
        self._consumers.close()
        self._core.end_attempts()
        self._files.flush()
        code = EXIT_OK
        for crash in close_tasks(self._core):
            code = EXIT_CRASHED
            self.fail(str(crash), crash.traceback_text)
            path = self._run_dir.close_errors(self._boot.topology.id, self._boot.slot_index)
            append_line(path, json.dumps(str(crash)))
        return code

    def close(self) -> None:
        """Close sockets, after a short wait for messages that are being sent."""
        self._supervisor.close()
        self._control.close()
        self._plane.close()
        self._context.term()
        self._metric_file.close()
        os.close(self._wake_fd)


def _log(text: str) -> None:
    sys.stderr.write(plain_lines(text) + "\n")
    sys.stderr.flush()


_LONG_NS = 300_000
"""An absence is long beyond this: ZeroMQ's thread needs a tenth of it, another worker that yields itself about half."""
_PAUSE = 20
"""The pause after a long absence, in multiples of that absence: bounds the cost to a twentieth of the time."""


class StepAside:
    """Yields the processor for a moment to ZeroMQ's thread, which has just been given a frame to send.

    Linux may let a woken thread wait until the running one has used up its time slice, some milliseconds; a frame that
    waits so long doubles the latency of its trees at half load (measured, see benchmarks/NOTES.md). But a thread that
    yields (`sched_yield`) forfeits the rest of its slice: beside a process that computes without pause it would get
    only a fraction of its share. So after a long absence it does not yield again for twenty times as long.
    """

    def __init__(
        self, step: Callable[[], None] = os.sched_yield, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._step = step
        self._now_ns = now_ns
        self._not_before_ns = 0

    def __call__(self) -> None:
        began_ns = self._now_ns()
        if began_ns < self._not_before_ns:
            return
        self._step()
        back_ns = self._now_ns()
        if back_ns - began_ns > _LONG_NS:
            self._not_before_ns = back_ns + _PAUSE * (back_ns - began_ns)
