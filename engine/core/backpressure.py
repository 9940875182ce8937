"""Back-pressure: decides which bolts must wait, and whether spouts must, because a queue holds too many bytes.

A *queue* holds the tuples that wait for one bolt task: its inbox, if the task is in this worker; else the tuples for it
that have not left. Each may hold `limit_bytes`; at that limit it is *full*, until it is down to half of it.

The rules
    * Spouts stop first: while anything is full anywhere, none emits.
    * A bolt that can send to a full task is *held*: it is not scheduled, as in Storm.
    * A bolt is never held by a task of its own cycle (its strongly connected component in the graph of components).
      So waiting follows the graph of components with each cycle taken as one, which has no cycles: the components at
      its end always run, and nothing waits for ever. What a cycle holds has no bound but this: spouts stop while one of
      its queues is full. A cycle that emits more than it takes therefore grows until memory ends, as in Storm.

Guarantees: a queue outside of cycles exceeds its limit by the emits of one turn of an executor, and by one link window
for each other worker that feeds it. Only *queued* bytes count: each batch is weighed when it is put (from two of its
rows), and measured exactly if it is still there at the end of the turn.

`Outgoing` has the parcels that wait to leave, so the bytes of the second kind of queue are counted where they lie.

Pure. Thread: the worker's loop. Only `processed_bytes` of a task is written by the thread that executes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain

from squall.engine.api.config import Config
from squall.engine.api.plan import Plan
from squall.engine.api.topology import Topology
from squall.engine.core.executor import BoltExecutor, BoltTask
from squall.engine.flow.batch import Batch
from squall.engine.flow.outbox import Outbox
from squall.engine.flow.parcel import Parcel

FRAMES_PER_WINDOW = 8
"""Frames of the largest size in a link window: so a frame overshoots the window by little."""
SPOUT_TURNS_PER_LIMIT = 4
"""Turns in which one spout task may fill a queue: so queues are checked in between."""


class Backpressure:
    """The queues of one worker, and its knowledge of the others'."""

    def __init__(self, topology: Topology, plan: Plan, tasks: Mapping[int, BoltTask], limit_bytes: int) -> None:
        """`tasks`: of the bolts of this worker."""
        self.limit_bytes = limit_bytes
        self._plan = plan
        self._tasks = tasks
        self._graph = {
            source: {spec.id for spec in topology.components.values() for one in spec.subscriptions
                     if one.source == source}
            for source in topology.components
        }
        self._feeders: dict[str, list[BoltExecutor]] = {}
        """Executors here that are held while a task of the component is full."""
        self.full: set[int] = set()
        """Tasks here whose queue is full."""
        self.full_elsewhere: frozenset[int] = frozenset()
        """Tasks of other workers whose queue is full, as the board says."""
        self._waiting: dict[int, int] = {}
        """Task of another worker -> bytes for it that have not left."""
        self._waiting_full: set[int] = set()

    # ---- set-up ----

    def add(self, component: str, feeder: BoltExecutor) -> None:
        """Add an executor of this worker."""
        for target in self._graph[component]:
            if component not in downstream_of(self._graph, target):
                self._feeders.setdefault(target, []).append(feeder)

    # ---- the queues ----

    def put(self, task: BoltTask, batch: Batch) -> None:
        """Count a batch that is about to be put in the queue of a task of this worker."""
        task.received_bytes = received_bytes = task.received_bytes + (batch.bytes or batch.weigh())
        if received_bytes - task.processed_bytes >= self.limit_bytes:
            self._judge(self.full, task.task, task.queued_bytes)

    def leave(self, batches: Iterable[Batch]) -> None:
        """Discount batches for other workers that leave. Most were never counted: only those left behind by a send."""
        for batch in batches:
            if batch.measured:
                self.waits(batch.target, -batch.bytes)

    def waits(self, target: int, size_bytes: int) -> None:
        """Count bytes (negative: fewer) that wait for a task of another worker, left behind by a send."""
        self._waiting[target] = waiting_bytes = self._waiting.get(target, 0) + size_bytes
        self._judge(self._waiting_full, target, waiting_bytes)

    def end_turn(self) -> None:
        """Measure the batches that remain in inboxes, and find the tasks that are no longer full."""
        for task in self._tasks.values():
            for batch, _ in reversed(task.inbox):
                if batch.measured:
                    break
                task.received_bytes += batch.measure()
            if task.inbox or self.full:
                self._judge(self.full, task.task, task.queued_bytes)

    def _judge(self, full: set[int], target: int, queued_bytes: int) -> None:
        """Note in `full` whether a queue is full, and hold or release the bolts that feed it."""
        if target in full:
            if 2 * queued_bytes < self.limit_bytes:
                full.remove(target)
                self.hold(target, -1)
        elif queued_bytes >= self.limit_bytes:
            full.add(target)
            self.hold(target, 1)

    def hold(self, target: int, step: int) -> None:
        """Hold the bolts that feed a task that is full (1), or release them (-1)."""
        for feeder in self._feeders.get(self._plan.task_component[target], ()):
            feeder.held += step

    # ---- the conclusions ----

    @property
    def congested(self) -> bool:
        """True if spouts must wait."""
        return bool(self.full or self._waiting_full)

    @property
    def stalled(self) -> bool:
        """True if received tuples may lie here for long: a queue is full, or its bolt may be held."""
        return bool(self.full or self._waiting_full or self.full_elsewhere)

    @property
    def held_bytes(self) -> int:
        """Bytes in the queues of this worker."""
        return sum(task.queued_bytes for task in self._tasks.values()) + sum(self._waiting.values())


class Outgoing:
    """Everything of one worker for the others: a parcel for each, and what waits for tasks whose queues are full."""

    def __init__(
        self, plan: Plan, config: Config, outbox: Outbox, pressure: Backpressure, count: Callable[[Batch], None]
    ) -> None:
        """`count` is told of each batch that leaves its task."""
        self._worker_of = plan.task_worker
        self._outbox = outbox
        self._pressure = pressure
        self._count = count
        self._parcels = defaultdict[int, Parcel](Parcel)
        self._stalled: dict[int, Parcel] = {}
        """Parcels for tasks of other workers whose queues are full, by task: they wait beside the others."""
        window_bytes = config.link_window_bytes
        # Two in a window, so that one is read while the next is written.
        self._long_frame_bytes = window_bytes // 2 if config.arena_bytes >= window_bytes else 0
        """Size of a frame with long values; 0 if there is little or no memory for them beside it."""

    @property
    def frame_bytes(self) -> int:
        """A parcel holds about so much, unless one tuple alone is bigger."""
        return self._pressure.limit_bytes // FRAMES_PER_WINDOW

    def frame_bytes_of(self, parcel: Parcel) -> int:
        """`frame_bytes`, or more if the parcel's values travel beside the frame: it takes as long as writing one or two
        MiB of them."""
        if self._long_frame_bytes and parcel.is_of_buffers:
            return self._long_frame_bytes
        return self.frame_bytes

    # ---- into parcels ----

    def parcel(self, worker: int) -> Parcel:
        """The parcel that is open to a worker."""
        return self._parcels[worker]

    def pack(self, batch: Batch) -> None:
        """Add a batch to its worker's parcel, or to what waits for its task."""
        self._count(batch)
        if not batch.bytes:
            batch.weigh()
        stalled = self._stalled.get(batch.target)
        (self._parcels[self._worker_of[batch.target]] if stalled is None else stalled).add(batch)

    def others_are_full(self, tasks: frozenset[int]) -> None:
        """Keep batches for these tasks of other workers, whose queues are full, and for no others."""
        pressure = self._pressure
        before, pressure.full_elsewhere = pressure.full_elsewhere, tasks
        for task in tasks - before:
            pressure.hold(task, 1)
            self._stalled[task] = self._parcels[self._worker_of[task]].take_for(task)
        for task in before - tasks:
            pressure.hold(task, -1)
            # First, because they may be measured already, and measured batches come first in a parcel.
            self._parcels[self._worker_of[task]].add_first(self._stalled.pop(task))

    # ---- out of the worker ----

    def close(self, workers: Collection[int] | None = None) -> list[int]:
        """Make everything for these workers (by default all) ready to be taken; for which of them there is
        something."""
        worker_of = self._worker_of
        wanted = None if workers is None else lambda target: worker_of[target] in workers
        for batch in self._outbox.take_there(wanted):
            self.pack(batch)
        return [worker for worker, parcel in self._parcels.items() if parcel and (workers is None or worker in workers)]

    def take(self, worker: int) -> Parcel:
        """Take the parcel for a worker, at most one frame of it. `has` says whether there is more."""
        parcel = self._parcels[worker]
        most_bytes = self.frame_bytes_of(parcel)
        if parcel.bytes > most_bytes:
            self._parcels[worker] = parcel.cut(most_bytes, self._outbox.edges.next)
        else:
            del self._parcels[worker]
        self._pressure.leave(parcel.batches)
        return parcel

    def has(self, worker: int) -> bool:
        """Return True if there is something for a worker that may be sent now."""
        return bool(self._parcels.get(worker))

    def put_back(self, worker: int, parcel: Parcel, size_bytes: int) -> None:
        """A parcel that was taken has `size_bytes` when it is encoded, too many for a frame: take it again, in smaller
        pieces."""
        waiting = self._parcels[worker]
        waiting.put_back(parcel.batches, size_bytes, parcel.rows)
        for batch in parcel.batches:
            self._pressure.waits(batch.target, batch.bytes)
        waiting.add_tracking(parcel)

    def halve(self, worker: int, parcel: Parcel) -> None:
        """A parcel that was taken cannot be encoded: take it again, in halves."""
        # So large that it is cut, whichever of the two sizes a frame of the pieces may have.
        self.put_back(worker, parcel, 2 * max(self.frame_bytes, self._long_frame_bytes))

    def drop_for(self, worker: int) -> list[Batch]:
        """Take everything for a worker that died, never to be sent."""
        lost = [self._parcels.pop(worker, Parcel())]
        for task in self._stalled:
            if self._worker_of[task] == worker:
                lost.append(self._stalled[task])
                self._stalled[task] = Parcel()
        batches = [batch for parcel in lost for batch in parcel.batches]
        self._pressure.leave(batches)
        return batches

    # ---- what waits ----

    def measure(self) -> None:
        """Measure the batches that remain after a send."""
        for parcel in chain(self._parcels.values(), self._stalled.values()):
            for batch in reversed(parcel.batches):
                if batch.measured:
                    break
                parcel.bytes += batch.measure()
                self._pressure.waits(batch.target, batch.bytes)

    @property
    def keeps_back(self) -> bool:
        """True if parcels wait for tasks of other workers whose queues are full."""
        return any(self._stalled.values())

    @property
    def weight(self) -> int:
        """Tuples and tracking messages that wait to be sent."""
        return self._outbox.rows_there + sum(parcel.weight for parcel in self._parcels.values())

    @property
    def backlog(self) -> int:
        """`weight`, and the tuples that wait for tasks whose queues are full."""
        return self.weight + sum(parcel.rows for parcel in self._stalled.values())

    def __bool__(self) -> bool:
        """Return True if anything is in a parcel."""
        return any(self._parcels.values()) or self.keeps_back


def downstream_of(graph: dict[str, set[str]], start: str) -> set[str]:
    """All components that tuples of `start` reach, itself among them only if it is in a cycle. `graph`: component ->
    its receivers."""
    reached: set[str] = set()
    to_look_at = list(graph[start])
    while to_look_at:
        component = to_look_at.pop()
        if component not in reached:
            reached.add(component)
            to_look_at += graph.get(component, ())
    return reached
