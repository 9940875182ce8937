"""SimulatedCluster: runs a topology on several workers in one process and thread, under a clock that the test moves.

Guarantees
    * The code of real workers handles every tuple: cores, ackers, codec. Links are queues, and time passes only when
      the test moves it (or waits in `run_until`); the same seed and the same calls give the same run.
    * Executors are placed as in a real cluster with as many free slots, and have the same task ids.
    * A killed worker loses all that it held but its state, and its peers react to its death as real ones do.

Not simulated: supervisors (a killed worker stays dead until `restart`), credit and back-pressure, threads (a `blocking`
bolt or spout runs in turn like all others). An exception in a component reaches the caller as `TaskCrashed`; a real
worker would die of it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from squall.engine.api.config import Config
from squall.engine.api.failure import Failure
from squall.engine.api.plan import Plan
from squall.engine.api.topology import ComponentSpec, Topology, check_topology
from squall.engine.clock import NS_PER_SEC, ManualClock
from squall.engine.core.assemble import close_tasks
from squall.engine.core.local import is_drained, readings_of
from squall.engine.core.worker_core import WorkerCore
from squall.engine.errors import ClusterError, UsageError
from squall.engine.flow.groupings import Values
from squall.engine.report.run_report import RunReport, build_report
from squall.engine.state.sink_task import GatheringTask, SinkTask
from squall.engine.state.stateful_task import StatefulTask
from squall.engine.state.windowing.window_task import WindowTask
from squall.scheduler.common.blob import copy_component
from squall.scheduler.common.messages import ComponentSummary, SlotRef
from squall.scheduler.nimbus.placement import place
from squall.testing.simulated_worker import Frame, Recorder, SimulatedWorker
from squall.testing.spouts import own_directory

MAX_BUSY_TURNS = 10_000
"""Most turns without a pause: an endless spout emits up to 256 tuples in each."""
_FIRST_PORT = 6700
"""First port of a node, as in scheduler.cluster.local_cluster, whose import would need ZeroMQ."""
_MIN_WAIT_NS, _MAX_WAIT_NS = 1_000_000, NS_PER_SEC
"""Shortest and longest step of the clock while spouts may hold a tuple back for later."""


class SimulatedCluster:
    """A topology on `config.workers` simulated workers in this process, on a clock that the test moves. A context
    manager that closes every task. State is below `state_root`, by default in a directory that goes with the cluster:
    give one for a second cluster that goes on with the state of the first."""

    def __init__(
        self, topology: Topology, config: Config | None = None, *, plan: Plan | None = None,
        clock: ManualClock | None = None, name: str = "simulated", state_root: str | Path | None = None,
        record: bool = True, copy: Callable[[ComponentSpec], Any] = copy_component,
    ) -> None:
        check_topology("SimulatedCluster", topology)
        config = topology.configured(config)
        self.name = name
        """Name of the topology."""
        self.config = config if config.seed is not None else config.replace(seed=0)
        """The settings in force; without a `seed` it is 0."""
        self.topology = topology
        """The topology that runs."""
        self.plan = plan or placed_plan(topology, self.config)
        """Which worker runs which executors and tasks."""
        self.clock = clock or ManualClock()
        """The clock of all workers."""
        self.active = True
        """True if spouts may emit."""
        self.errors: list[tuple[str, int, str]] = []
        """(component, task, text) of every reported error."""
        self.dead_letters: list[tuple[str, int, Any, Any, Failure]] = []
        """(component, task, message id, values, last failure) of every message that was given up."""
        self._own_root = tempfile.mkdtemp(dir=own_directory()) if state_root is None else None
        self.state_root = str(self._own_root or state_root)
        """The directory below which state is."""
        self.copy = copy
        """Makes the user object of a task."""
        self.recorder = Recorder(topology, self.plan) if record else None
        """What was emitted and failed; None without `record`."""
        self._started_ns = self.clock.now_ns()
        indexes = range(self.plan.n_workers)
        self.board = [(1, True) for _ in indexes]
        """(incarnation, alive) of each worker."""
        self.links = {(source, target): deque[Frame]() for source in indexes for target in indexes}
        """Frames that are under way, by the indexes of their workers."""
        self.workers: list[SimulatedWorker | None] = [None for _ in indexes]
        """Workers by index; None if dead."""
        for index in indexes:
            self._start(index)

    # ---- what happened ----

    @property
    def emitted(self) -> dict[str, list[Values]]:
        """Tuples emitted so far, by "component/stream" and as readers see them; the default stream by "component"."""
        return self._recorded.emitted

    @property
    def failed(self) -> list[tuple[str, Any, Failure]]:
        """(spout, message id, failure) of each message that failed and was not acked since."""
        return list(self._recorded.failed.values())

    @property
    def _recorded(self) -> Recorder:
        if self.recorder is None:
            raise UsageError("this cluster was made with record=False, so it keeps no emitted tuples and no failures")
        return self.recorder

    @property
    def cores(self) -> list[WorkerCore]:
        """The cores of the living workers."""
        return [worker.core for worker in self.workers if worker is not None]

    def core(self, worker: int) -> WorkerCore:
        """The core of a worker, by its index. ClusterError if the worker is dead."""
        found = self.workers[worker]
        if found is None:
            raise ClusterError(f"worker {self.plan.worker_names[worker]} is dead")
        return found.core

    def user(self, component: str, index: int = 0) -> Any:
        """The user object of one task."""
        task = self.plan.tasks_of(component)[index]
        user = next(user for _, at, user in self.core(self.plan.task_worker[task]).users() if at == task)
        user = user.task if isinstance(user, GatheringTask) else user
        return user.inner if isinstance(user, SinkTask | StatefulTask | WindowTask) else user

    @property
    def pending(self) -> int:
        """Number of messages not answered yet."""
        return sum(len(task.pending) for core in self.cores for task in core.spout_tasks.values())

    @property
    def tracked(self) -> int:
        """Number of trees that ackers have not answered yet."""
        return sum(len(acker) for core in self.cores for acker in core.ackers.values())

    @property
    def quiet(self) -> bool:
        """True if nothing is under way in or between workers."""
        return all(core.quiet for core in self.cores) and not any(self.links.values())

    @property
    def drained(self) -> bool:
        """True if all workers live, all spouts are exhausted, and nothing is pending or under way."""
        return None not in self.workers and self.quiet and all(map(is_drained, self.cores))

    def report(self) -> RunReport:
        """Report the living workers' counts so far, as a real run does."""
        readings = [reading for core in self.cores for reading in readings_of(core)]
        duration_secs = (self.clock.now_ns() - self._started_ns) / NS_PER_SEC
        return build_report(self.name, readings, duration_secs, [], self.drained)

    # ---- letting it happen ----

    def step(self) -> bool:
        """Run one turn of every worker. Returns whether anything happened. Raises TaskCrashed."""
        worked = False
        for worker in self.workers:
            if worker is not None:
                worked |= worker.turn()
        return worked or any(map(self._under_way, range(self.plan.n_workers)))

    def _under_way(self, target: int) -> bool:
        """Return True if a frame is under way that a living worker will receive."""
        sources = range(self.plan.n_workers)
        return self.workers[target] is not None and any(self.links[source, target] for source in sources)

    def settle(self) -> None:
        """Step until nothing happens."""
        for _ in range(MAX_BUSY_TURNS):
            if not self.step():
                return
        raise self._still_busy()

    def advance(self, secs: float) -> None:
        """Move the clock by `secs`: every tick and timeout in between happens at its time."""
        end_ns = self.clock.now_ns() + round(secs * NS_PER_SEC)
        self.settle()
        while (deadline_ns := self._next_deadline_ns()) <= end_ns:
            self._move_to(deadline_ns)
            self.settle()
        self._move_to(end_ns)
        self.settle()

    def run_until(self, condition: Callable[[], bool], timeout_secs: float = 60.0, what: str = "the condition") -> None:
        """Step, and move the clock if nothing happens, until `condition()`.

        ClusterError if `timeout_secs` of simulated time pass first.
        """
        end_ns = self.clock.now_ns() + round(timeout_secs * NS_PER_SEC)
        busy_turns, wait_ns = 0, _MIN_WAIT_NS
        while not condition():
            if self.step():
                busy_turns, wait_ns = busy_turns + 1, _MIN_WAIT_NS
                if busy_turns > MAX_BUSY_TURNS:
                    raise self._still_busy()
                continue
            now_ns = self.clock.now_ns()
            if now_ns >= end_ns:
                raise ClusterError(f"topology {self.name!r}: {timeout_secs:g} simulated seconds passed before {what}")
            # Not in one step to the next deadline: a spout may hold a tuple back until a time of its own.
            self._move_to(min(end_ns, now_ns + wait_ns, self._next_deadline_ns()))
            busy_turns, wait_ns = 0, min(2 * wait_ns, _MAX_WAIT_NS)

    def run(self, timeout_secs: float = 3600.0) -> RunReport:
        """Run until drained. Returns the report. ClusterError if `timeout_secs` of simulated time pass first."""
        self.run_until(lambda: self.drained, timeout_secs, "it was drained")
        return self.report()

    def _next_deadline_ns(self) -> int:
        """The next time of a tick or timeout; if no worker lives, one message timeout from now."""
        deadlines = [core.next_deadline_ns for core in self.cores]
        rotations = [worker.rotates_at_ns for worker in self.workers if worker is not None]
        return min(
            [*rotations, *(deadline for deadline in deadlines if deadline is not None)],
            default=self.clock.now_ns() + round(self.config.message_timeout_secs * NS_PER_SEC),
        )

    def _move_to(self, at_ns: int) -> None:
        now_ns = self.clock.now_ns()
        if at_ns > now_ns:
            self.clock.advance_ns(at_ns - now_ns)

    def _still_busy(self) -> ClusterError:
        return ClusterError(
            f"topology {self.name!r} is still busy after {MAX_BUSY_TURNS} turns; a spout that never runs dry can be "
            "stepped, or run until a condition holds"
        )

    # ---- commands ----

    def set_active(self, active: bool) -> None:
        """Activate or deactivate the spouts."""
        self.active = active
        for core in self.cores:
            core.set_active(active)

    def kill(self, worker: int | str) -> None:
        """End a worker ("node:port", or its index) without warning; frames that it had sent still arrive."""
        index = self._index(worker)
        if self.workers[index] is None:
            raise ClusterError(f"worker {self.plan.worker_names[index]} is dead already")
        self.board[index] = (self.board[index][0], False)
        self.workers[index] = None
        for source in range(self.plan.n_workers):
            self.links[source, index].clear()

    def restart(self, worker: int | str) -> None:
        """Start the next incarnation of a killed worker. TaskCrashed if `open` or `prepare` raises."""
        index = self._index(worker)
        if self.workers[index] is not None:
            raise ClusterError(f"worker {self.plan.worker_names[index]} lives; kill it first")
        self.board[index] = (self.board[index][0] + 1, True)
        self._start(index)

    def _start(self, index: int) -> None:
        worker = SimulatedWorker(self, index)
        worker.core.set_active(self.active)
        self.workers[index] = worker

    def _index(self, worker: int | str) -> int:
        names = list(self.plan.worker_names)
        if worker in names:
            return names.index(str(worker))
        if isinstance(worker, int) and 0 <= worker < len(names):
            return worker
        raise UsageError(f"there is no worker {worker!r}; workers are {', '.join(names)}, or 0 to {len(names) - 1}")

    def close(self) -> None:
        """Close every task of the living workers. Raises the first TaskCrashed among them."""
        crashes = [crash for core in self.cores for crash in close_tasks(core)]
        self.workers = [None] * self.plan.n_workers
        if self._own_root is not None:
            shutil.rmtree(self._own_root, ignore_errors=True)
        if crashes:
            raise crashes[0]

    def __enter__(self) -> SimulatedCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            self.close()
        except Exception:
            # The test's own error tells more than one from closing after it.
            if kind is None:
                raise


def placed_plan(topology: Topology, config: Config) -> Plan:
    """Place all executors as a cluster with as many free slots as workers would."""
    components = [ComponentSummary(*row) for row in topology.layout(config.acker_count)]
    slots = [SlotRef("node-1", _FIRST_PORT + number) for number in range(config.workers)]
    placed = place(components, config.workers, slots)
    assert placed is not None, "a topology has at least one component, and workers are at least one"
    workers, executors = placed
    return Plan(executors, [str(slot) for slot in workers])
