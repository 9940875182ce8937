"""Back-pressure: decides which bolts must wait, and whether spouts must, because a queue holds too many bytes.

A *queue* holds the tuples that wait for one bolt task: its inbox, if the task is in this worker; else the tuples for it
that have not left. Each may hold `limit_bytes`; at that limit it is *full*, until it is down to half of it.

The rules
    * Spouts stop first: while anything is full anywhere, none emits.
    * A bolt that can send to a full task is *held*: it is not scheduled, as in Storm.
    * A bolt is never held by a task of its own cycle (its strongly connected component in the graph of components).
      So waiting follows the graph of components with each cycle taken as one, which has no cycles: the components at
      its end always run, and nothing waits for ever. The tuples in a cycle have another bound: when its queues in this
      worker hold `CYCLE_LIMITS` times the limit (or twice the limit for each of its tasks, or `CYCLE_VALUES` of the
      largest tuples seen in it, if that is more), the cycle emits more than it takes, and the worker ends by
      `CycleOverflow`.
    * A cycle that emits as much as it takes stays far below. Its tuples are in no queue while they are executed or
      under way, and the board is a turn old; so spouts add tuples, one a turn if each fills a queue, until
      something is queued at every look. At worst about 30 such tuples met in one worker: hence a bound in tuples, too.

Guarantees: a queue exceeds its limit by the emits of one turn of an executor, and by one link window for each other
worker that feeds it. Only *queued* bytes count: each batch is weighed when it is put (from two of its rows), and
measured exactly if it is still there at the end of the turn.

Pure. Thread: the worker's loop. Only `processed_bytes` of a task is written by the thread that executes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from squall.engine.api.plan import Plan
from squall.engine.api.topology import Topology
from squall.engine.core.executor import BoltTask, TaskCrashed
from squall.engine.flow.batch import Batch
from squall.engine.flow.parcel import Parcel
from squall.engine.foreign.sizes import row_bytes

CYCLE_LIMITS = 16
"""Bound of the queues of one cycle in one worker, in limits of one queue."""
CYCLE_VALUES = 64
"""Least bound of the queues of one cycle in one worker, in largest tuples seen: about twice the worst seen."""
CYCLE_VALUES_PER_SPOUT = 4
"""Largest tuples added to that bound for each spout task, which may emit before it hears of a full queue."""
MOST_FOR_VALUES = 1 << 30
"""Bytes: cap of the bound in tuples, because tuples that grow as they go round must end too."""
FRAMES_PER_WINDOW = 8
"""Frames of the largest size in a link window: so a frame overshoots the window by little."""
SPOUT_TURNS_PER_LIMIT = 4
"""Turns in which one spout task may fill a queue: so queues are checked in between."""
_MIB = 1 << 20


class CycleOverflow(TaskCrashed):
    """A cycle of bolts emits more than it takes, and only memory would end it."""

    def __init__(self, cycle: list[str], task: int, held_bytes: int, allowed_bytes: int) -> None:
        self.component = cycle[0]
        self.task = task
        way = " -> ".join([*cycle, cycle[0]])
        self.error_text = (
            f"{way} holds {held_bytes / _MIB:.1f} MiB in its queues; allowed: {round(allowed_bytes / _MIB, 1):g} MiB; "
            "it emits more than it takes"
        )
        self.traceback_text = ""
        Exception.__init__(self, f"cycle {self.error_text}")


class Feeder(Protocol):
    """An executor whose bolt can send to others."""

    def hold(self, step: int) -> None:
        """Count one more full target (1), or one fewer (-1)."""


class Backpressure:
    """The queues of one worker, and its knowledge of the others'."""

    def __init__(self, topology: Topology, plan: Plan, me: int, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._plan = plan
        self._me = me
        self._graph = {
            source: {spec.id for spec in topology.components.values() for one in spec.subscriptions
                     if one.source == source}
            for source in topology.components
        }
        self._cycles = find_cycles(self._graph)
        self._cycle_of = {component: cycle for cycle in self._cycles for component in cycle}
        spout_tasks = sum(len(plan.tasks_of(spec.id)) for spec in topology.spouts)
        self._cycle_values = CYCLE_VALUES + CYCLE_VALUES_PER_SPOUT * spout_tasks
        self._largest = {task: 0 for component in self._cycle_of for task in plan.tasks_of(component)}
        """Task of a cycle -> bytes of the largest tuple for it that was seen here."""
        self._tasks: dict[int, BoltTask] = {}
        self._feeders: dict[str, list[Feeder]] = {}
        """Executors here that are held while a task of the component is full."""
        self.full: set[int] = set()
        """Tasks here whose queue is full."""
        self.full_elsewhere: frozenset[int] = frozenset()
        """Tasks of other workers whose queue is full, as the board says."""
        self._waiting: dict[int, int] = {}
        """Task of another worker -> bytes for it that have not left."""
        self._waiting_full: set[int] = set()

    # ---- set-up ----

    def add(self, component: str, tasks: Iterable[BoltTask], feeder: Feeder) -> None:
        """Add an executor of this worker."""
        self._tasks.update((task.task, task) for task in tasks)
        own_cycle = self._cycle_of.get(component, ())
        for target in self._graph[component]:
            if target not in own_cycle:
                self._feeders.setdefault(target, []).append(feeder)

    # ---- the queues ----

    def put(self, task: BoltTask, batch: Batch) -> None:
        """Count a batch that is about to be put in the queue of a task of this worker."""
        task.received_bytes = received_bytes = task.received_bytes + (batch.bytes or batch.weigh())
        if self._largest:
            self._see_size(batch)
        if received_bytes - task.processed_bytes >= self.limit_bytes:
            self._see(task)

    def leave(self, batches: Iterable[Batch]) -> None:
        """Discount batches for other workers that leave. Most were never counted: only those left behind by a send."""
        for batch in batches:
            if batch.measured:
                self.waits(batch.target, -batch.bytes)

    def waits(self, target: int, size_bytes: int) -> None:
        """Count bytes (negative: fewer) that wait for a task of another worker, left behind by a send."""
        waiting = self._waiting[target] = self._waiting.get(target, 0) + size_bytes
        if waiting >= self.limit_bytes:
            if target not in self._waiting_full:
                self._waiting_full.add(target)
                self._hold(target, 1)
        elif target in self._waiting_full and 2 * waiting < self.limit_bytes:
            self._waiting_full.remove(target)
            self._hold(target, -1)

    def measure_waiting(self, parcels: Iterable[Parcel]) -> None:
        """Measure the batches that remain after a send."""
        for parcel in parcels:
            for batch in reversed(parcel.batches):
                if batch.measured:
                    break
                parcel.bytes += batch.measure()
                self._see_size(batch)
                self.waits(batch.target, batch.bytes)

    def end_turn(self) -> None:
        """Measure the batches that remain in inboxes, and find the tasks that are no longer full. Raises
        CycleOverflow."""
        for task in self._tasks.values():
            if task.inbox:
                self._measure_inbox(task)
        if self.full:
            for number in [task for task in self.full if 2 * self._tasks[task].queued_bytes < self.limit_bytes]:
                self.full.remove(number)
                self._hold(number, -1)
            self._look_for_overflow()
        elif self._waiting_full:
            self._look_for_overflow()

    def _measure_inbox(self, task: BoltTask) -> None:
        for batch, _ in reversed(task.inbox):
            if batch.measured:
                return
            task.received_bytes += batch.measure()
        self._see(task)

    def _see_size(self, batch: Batch) -> None:
        """Note the average tuple size of a batch, which needs no look at its tuples."""
        before = self._largest.get(batch.target)
        if before is not None and batch.bytes > before * len(batch.rows):
            self._largest[batch.target] = batch.bytes // len(batch.rows)

    def _see(self, task: BoltTask) -> None:
        if task.queued_bytes >= self.limit_bytes and task.task not in self.full:
            self.full.add(task.task)
            self._hold(task.task, 1)

    def others_are_full(self, tasks: frozenset[int]) -> tuple[frozenset[int], frozenset[int]]:
        """Take the tasks of other workers that are full now; returns those newly full, and those no longer full."""
        before, self.full_elsewhere = self.full_elsewhere, tasks
        newly, no_longer = tasks - before, before - tasks
        for task in newly:
            self._hold(task, 1)
        for task in no_longer:
            self._hold(task, -1)
        return newly, no_longer

    def _hold(self, target: int, step: int) -> None:
        for feeder in self._feeders.get(self._plan.task_component[target], ()):
            feeder.hold(step)

    # ---- the conclusions ----

    @property
    def congested(self) -> bool:
        """Whether spouts must wait."""
        return bool(self.full or self._waiting_full)

    @property
    def stalled(self) -> bool:
        """Whether received tuples may lie here for long: a queue is full, or its bolt may be held."""
        return bool(self.full or self._waiting_full or self.full_elsewhere)

    @property
    def held_bytes(self) -> int:
        """Bytes in the queues of this worker."""
        return sum(task.queued_bytes for task in self._tasks.values()) + sum(self._waiting.values())

    def _look_for_overflow(self) -> None:
        for cycle in self._cycles:
            tasks = [task for component in cycle for task in self._plan.tasks_of(component)]
            held_bytes = sum(
                self._tasks[task].queued_bytes if task in self._tasks else self._waiting.get(task, 0) for task in tasks
            )
            # At least the bytes that so many tasks may hold when filled from outside.
            allowed_bytes = self.limit_bytes * max(CYCLE_LIMITS, 2 * len(tasks))
            if held_bytes > allowed_bytes:
                allowed_bytes = max(allowed_bytes, self._bytes_of_values(tasks))
                if held_bytes > allowed_bytes:
                    self._find_largest(tasks)
                    allowed_bytes = max(allowed_bytes, self._bytes_of_values(tasks))
                if held_bytes > allowed_bytes:
                    raise CycleOverflow(cycle, tasks[0], held_bytes, allowed_bytes)

    def _bytes_of_values(self, tasks: list[int]) -> int:
        return min(self._cycle_values * max(self._largest[task] for task in tasks), MOST_FOR_VALUES)

    def _find_largest(self, tasks: list[int]) -> None:
        """Size every tuple in these inboxes before the worker ends: averages hide a large one among small ones."""
        for number in tasks:
            if (task := self._tasks.get(number)) is not None:
                sizes = (row_bytes(row) for batch, _ in task.inbox for row in batch.rows)
                self._largest[number] = max(self._largest[number], max(sizes, default=0))


def find_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Find the strongly connected components that have a cycle: each a list of components, in the order of its edges
    where possible. `graph`: component -> its receivers."""
    reached = {component: _reach(graph, component) for component in graph}
    cycles: list[list[str]] = []
    for component in graph:
        if component not in reached[component] or any(component in cycle for cycle in cycles):
            continue
        members = [other for other in graph if other in reached[component] and component in reached[other]]
        cycles.append(_in_order(graph, members))
    return cycles


def _reach(graph: dict[str, set[str]], start: str) -> set[str]:
    """All components downstream of `start`; itself only if it is in a cycle."""
    reached: set[str] = set()
    to_look_at = list(graph[start])
    while to_look_at:
        component = to_look_at.pop()
        if component not in reached:
            reached.add(component)
            to_look_at += graph.get(component, ())
    return reached


def _in_order(graph: dict[str, set[str]], members: list[str]) -> list[str]:
    order, left = [members[0]], members[1:]
    while left:
        after = next((member for member in left if member in graph[order[-1]]), left[0])
        order.append(after)
        left.remove(after)
    return order
