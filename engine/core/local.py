"""Local mode: a whole topology in this one process and thread, for a debugger and for unit tests.

Guarantees: the turn that a worker runs (`engine.core.turn`) meets every tuple, without processes, sockets or threads
(components marked `blocking` run in turn like all others). With the same seed and input, executors run in the same
order and groupings choose the same tasks. An exception in a component reaches the caller unchanged.
"""

from __future__ import annotations

import math
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from squall.engine.api.config import Config
from squall.engine.api.failure import Failure
from squall.engine.api.plan import ExecutorPlan, Plan
from squall.engine.api.topology import ComponentSpec, Topology
from squall.engine.api.user_metrics import UserMetrics
from squall.engine.clock import Clock
from squall.engine.core.assemble import Assembler, close_tasks
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.surroundings import Surroundings
from squall.engine.core.transport import NoPeers, NoTransport
from squall.engine.core.turn import Turn
from squall.engine.core.worker_core import WorkerCore
from squall.engine.errors import ClusterError
from squall.engine.foreign.text import plain
from squall.engine.report.failure_log import FailureLog, Repeats, merge_failures
from squall.engine.report.metrics import TASK_COUNTERS
from squall.engine.report.run_report import FLOW_COUNTERS, RunReport, TaskReading, build_report
from squall.engine.tracking.peers import Peers

LOCAL_WORKER = "local:0"
_IDLE_SLEEP_SECS = 0.001


def local_plan(topology: Topology, ackers: int) -> Plan:
    """Plan everything in one worker, with task ids as in a cluster: over components sorted by id."""
    executors, task = [], 1
    for component, _, tasks, n_executors in sorted(topology.layout(1 if ackers else 0)):
        quotient, remainder = divmod(tasks, n_executors)
        for index in range(n_executors):
            size = quotient + (index < remainder)
            executors.append(ExecutorPlan(component, task, task + size - 1))
            task += size
    return Plan([executors], [LOCAL_WORKER])


def readings_of(core: WorkerCore) -> list[TaskReading]:
    """Read counters and latency histogram of every task of one worker."""
    core.refresh_gauges()
    readings = []
    for task, stats in core.stats.items():
        component = core.plan.task_component[task]
        counters = dict(zip(TASK_COUNTERS, stats.counters(), strict=True))
        counters.update(zip(FLOW_COUNTERS, core.untracked[2 * task - 2 : 2 * task], strict=True))
        worker = core.plan.worker_names[core.me]
        readings.append(
            TaskReading(task, component, core.topology[component].kind, worker, counters, stats.histogram)
        )
    return readings


def is_drained(core: WorkerCore) -> bool:
    """Return True if the spouts of this worker are exhausted, with nothing pending and nothing under way inside."""
    return core.quiet and all(task.finished for task in core.spout_tasks.values())


class LocalRunner:
    """Runs one topology in this thread."""

    def __init__(
        self,
        topology: Topology,
        config: Config | None = None,
        name: str = "local",
        clock: Clock | None = None,
        copy: Callable[[ComponentSpec], Any] | None = None,
        interrupts: bool = True,
    ) -> None:
        """`interrupts`: True if a KeyboardInterrupt in a component is the operator's. False if SIGINT does not raise
        one: then it is the component's error, as in a worker."""
        config = topology.configured(config)
        self.name = name
        self._interrupts = interrupts
        self.config = config if config.seed is not None else config.replace(seed=0)
        self.topology = topology
        self.plan = local_plan(topology, self.config.acker_count)
        self.clock = clock or Clock()
        self.errors: list[tuple[str, int, str]] = []
        """(component, task, text) of every reported error."""
        self._told = Repeats()
        self._stopped = ""
        self.dead_letters: list[tuple[str, int, Any, Any, Failure]] = []
        self.metrics = UserMetrics()
        self._failures = FailureLog(self.clock.now_ns)
        self._state = tempfile.TemporaryDirectory(prefix="squall-local-")
        self._started_ns = self.clock.now_ns()
        around = Surroundings(
            topology_name=name, worker=LOCAL_WORKER, attempt=1, now_ns=self.clock.now_ns, state_root=self._state.name,
            report_error=self._report_error, dead_letter=lambda *letter: self.dead_letters.append(letter),
            copy=copy or _copy_by_pickle, threads=False, timed=False, interrupts=interrupts, metrics=self.metrics,
            note_failures=self._failures.note, stop=self._stop, wall_ns=self.clock.wall_ns,
        )
        peers = Peers(1, 0)
        peers.update(0, 1, True)
        try:
            self.core: WorkerCore = Assembler(topology, self.plan, self.config, 0, peers, around).build()
        except BaseException:
            self._state.cleanup()
            raise
        self._turn = Turn(self.core, NoTransport(), NoPeers(), self.config, self.clock.now_ns)

    def _report_error(self, component: str, task: int, text: str) -> None:
        self.errors.append((component, task, text))
        if (line := self._told.error_line(component, task, text, self.clock.now_ns())) is not None:
            sys.stderr.write(f"{plain(line)}\n")

    def _stop(self, why: str) -> None:
        self._stopped = why

    def step(self) -> bool:
        """Run one turn; return True if anything was done. Raises TaskCrashed, or ClusterError, with the report, at a
        fault of the set-up."""
        try:
            worked = self._turn.run()
        except TaskCrashed as crash:
            if self._interrupts and isinstance(crash.__cause__, KeyboardInterrupt):
                raise crash.__cause__ from None  # the operator interrupts this process
            raise
        if self._stopped:
            error = ClusterError(f"topology {self.name!r} has stopped: {self._stopped}")
            error.report = self.report()
            raise error
        return worked

    @property
    def drained(self) -> bool:
        """True if all spouts are exhausted, with nothing pending or under way."""
        return is_drained(self.core)

    def run(self, timeout_secs: float | None = None, should_stop: Callable[[], bool] | None = None) -> RunReport:
        """Run until drained. Raises TaskCrashed, or ClusterError when `timeout_secs` pass first."""
        self.core.set_active(True)
        if not self._run_until(lambda: self.drained, timeout_secs, should_stop):
            raise ClusterError(f"topology {self.name!r} was not drained within {timeout_secs:g} s")
        return self.report()

    def drain(self, wait_secs: float, should_stop: Callable[[], bool] | None = None) -> RunReport:
        """Stop the spouts and run until nothing is pending or under way, or `wait_secs` have passed. Raises
        TaskCrashed."""
        self.core.set_active(False)
        self._run_until(lambda: self._at_rest, wait_secs, should_stop)
        return self.report()

    def _run_until(
        self, done: Callable[[], bool], secs: float | None, should_stop: Callable[[], bool] | None
    ) -> bool:
        """Take turns until `done` or `should_stop`; return False if `secs` pass first. Raises TaskCrashed."""
        ends = math.inf if secs is None else time.monotonic() + secs
        while not (done() or (should_stop is not None and should_stop())):
            if time.monotonic() > ends:
                return False
            if not self.step():
                time.sleep(_IDLE_SLEEP_SECS)
        return True

    @property
    def _at_rest(self) -> bool:
        return self.core.quiet and not any(len(task.pending) for task in self.core.spout_tasks.values())

    def report(self) -> RunReport:
        """Build the report of the run so far."""
        duration_secs = (self.clock.now_ns() - self._started_ns) / 1e9
        self.metrics.sample(self._report_error)
        report = build_report(
            self.name, readings_of(self.core), duration_secs, [], self.drained, self.metrics.readings(), self.core.quiet
        )
        return replace(report, failures=merge_failures([self._failures.failures()], self._started_ns / 1e9))

    def close(self) -> list[TaskCrashed]:
        """Close every task; returns the errors they raised."""
        try:
            return close_tasks(self.core)
        finally:
            self._state.cleanup()

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        crashes = self.close()
        if crashes and exc_type is None:
            raise crashes[0]


def _copy_by_pickle(spec: ComponentSpec) -> Any:
    return pickle.loads(pickle.dumps(spec.component))

