"""Executors: call user code with tuples and turn what it did into acks and failures.

Guarantees
    * A task's methods are called one at a time, by one thread.
    * The tuples of a run are executed in order; the run is acked after its last tuple is done, never before.
    * An exception out of user code never passes for success: it becomes a `TaskCrashed` that says which task, which
      tuple and why, after the trees at hand have been marked failed.

No I/O: time comes from a clock, tuples come in batches, results go to an outbox.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, MutableSequence
from itertools import islice
from sys import getrefcount
from typing import Any

from engine.batch import Batch
from engine.collectors import BasicCollector
from engine.component import BasicBolt, Bolt
from engine.errors import FailedTuple, SquallError
from engine.failure import EXCEPTION, FAILED, Failure
from engine.metrics import TaskStats
from engine.outbox import Outbox
from engine.stream import TICK_STREAM, Stream
from engine.tuple import Run, Source, Tuple


def _refcount_of_unshared() -> int:
    """What `getrefcount` gives for an object that only a local variable holds; it differs between interpreters."""
    tup = Tuple((), _NO_SOURCE, Run(0, 0, 0))
    return getrefcount(tup)


_NO_SOURCE = Source("", 0, "", Stream())
_UNSHARED = _refcount_of_unshared()
SourceOf = Callable[[int, str], Source]
AtHand = MutableSequence[int] | memoryview
"""One word: the task whose code a loop is in, 0 = none. Read by who finds the loop hung."""


SLICE_NS = 5_000_000
"""So long a task executes before what it did is acked and sent, and others get their turn. Batches of quick bolts never
take so long; one that computes or waits a while for each tuple does not keep its worker, or its own acks, waiting. How
many tuples that is follows from what the last ones took: a limit on their number as well (512) cost a tenth of word
count's throughput."""


class TaskCrashed(SquallError):
    """User code raised, and the policy is to let the worker die of it."""

    def __init__(self, component: str, task: int, doing: str, error: BaseException) -> None:
        self.component = component
        self.task = task
        self.error_text = describe(error)
        self.traceback_text = "".join(traceback.format_exception(error))
        super().__init__(f"{component}[{task}] raised {self.error_text} in {doing}")


class TaskHung(TaskCrashed):
    """User code did not come back, and only the end of its worker ends it."""

    def __init__(self, component: str, task: int, secs: float, limit_secs: float, stack: str) -> None:
        self.component = component
        self.task = task
        self.error_text = f"in execute for {secs:g} s, execute_timeout_secs is {limit_secs:g}"
        self.traceback_text = stack
        SquallError.__init__(self, f"{component}[{task}] hung {self.error_text}")


def describe(error: BaseException) -> str:
    """One line: type and message."""
    text = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class BoltTask:
    """One task of a bolt, whichever kind: its queue, its counters, its user object."""

    __slots__ = (
        "component", "execute", "inbox", "processed", "received", "slice_rows", "stats", "task", "tick_ns",
        "ticks_at_ns", "user",
    )

    def __init__(self, component: str, task: int, user: Bolt | BasicBolt, stats: TaskStats, tick_secs: float | None):
        self.component = component
        self.task = task
        self.user = user
        self.execute: Callable[..., None] = user.execute
        """The user's method, or what stands before it (see `engine.hooks`)."""
        self.stats = stats
        self.inbox: deque[tuple[Batch, Callable[[], None] | None]] = deque()
        self.received = 0
        """Tuples put in the inbox so far (counted by the thread that puts them)."""
        self.processed = 0
        """Tuples taken out and done (counted by the thread that executes them)."""
        self.slice_rows = 1
        """So many it is expected to execute in SLICE_NS; one at first, nobody knows how long it takes."""
        self.tick_ns = round(tick_secs * 1e9) if tick_secs else 0
        self.ticks_at_ns = 0


class BoltExecutor:
    """Runs the tasks of one bolt that share an executor."""

    def __init__(
        self, tasks: list[BoltTask], collectors: dict[int, Any], outbox: Outbox, now_ns: Callable[[], int],
        source_of: SourceOf, worker: str, crash: bool, at_hand: AtHand | None = None, slices: bool = True,
    ) -> None:
        """`slices`: whether a long batch may be interrupted; False where order must not depend on the time."""
        self.tasks = tasks
        self.outbox = outbox
        self._now_ns = now_ns
        self._source_of = source_of
        self._worker = worker
        self._crash = crash
        self._at_hand: AtHand = [0] if at_hand is None else at_hand
        self.collectors = collectors
        self._slices = slices
        self._process = {
            task.task: self._process_basic if isinstance(task.user, BasicBolt) else self._process_plain
            for task in tasks
        }

    def run(self) -> bool:
        """Process what is in the tasks' inboxes now; whether there was anything."""
        worked = False
        for task in self.tasks:
            inbox = task.inbox
            # What arrives meanwhile (a bolt that feeds itself) waits for the next turn, so that others get theirs.
            left = len(inbox)
            if not left:
                continue
            worked = True
            stats = task.stats
            until_ns = stats.execute_ns + SLICE_NS
            while left:
                batch, done = inbox.popleft()
                if self.process(task, batch):
                    inbox.appendleft((batch, done))
                else:
                    left -= 1
                    if done is not None:
                        done()
                if self._slices and stats.execute_ns >= until_ns:
                    break
        return worked

    def process(self, task: BoltTask, batch: Batch) -> bool:
        """Execute a batch, or as much of it as fits a slice; whether there is more, left in it."""
        count = len(batch.rows)
        more = self._slices and count > task.slice_rows
        if more:
            count = task.slice_rows
            batch = batch.split(count, self.outbox.edges.next)
        begin = self._now_ns()
        self._at_hand[0] = task.task
        try:
            self._process[task.task](task, batch)
        finally:
            self._at_hand[0] = 0
            stats = task.stats
            spent_ns = self._now_ns() - begin
            task.processed += count
            stats.execute_ns += spent_ns
            if batch.stream != TICK_STREAM:
                stats.executed += count
                task.slice_rows = count * SLICE_NS // (spent_ns or 1) or 1
        return more

    def _process_basic(self, task: BoltTask, batch: Batch) -> None:
        execute = task.execute
        collector: BasicCollector = self.collectors[task.task]
        run = collector.run
        run.others = ()
        tup = Tuple((), self._source_of(batch.source, batch.stream), run)
        acks, workers, others = self.outbox.acks, self.outbox.workers, batch.others
        rows = iter(batch.rows)
        ends = batch.starts[1:]
        ends.append(len(batch.rows))
        runs = zip(batch.roots, batch.edges, batch.starts, ends, strict=True)
        for index, (root, edge, begin, end) in enumerate(runs):
            # One Run serves all: a basic bolt cannot ack or anchor by itself, so none outlives its turn.
            collector.key = run.root = root
            run.edge = edge
            run.children = run.mask = 0
            if others is not None:
                self._join(collector, others.get(index, ()))
            values = islice(rows, end - begin)
            while True:
                try:
                    for tup.values in values:
                        execute(tup, collector)
                        if getrefcount(tup) != _UNSHARED:
                            # The bolt kept it: the next one gets an object of its own.
                            tup = Tuple((), tup._source, run)
                    break
                except Exception as error:
                    if batch.stream != TICK_STREAM:
                        task.stats.failed += 1
                    if isinstance(error, FailedTuple):
                        # The tree is lost, but its other tuples are executed all the same, as in Storm.
                        self.outbox.fail_run(run, self.failure(task, FAILED, str(error)))
                    else:
                        self._raised(task, run, error)
                # The bolt may have kept this one before it raised.
                tup = Tuple((), tup._source, run)
            if root:
                if run.failed or others is not None:
                    self.outbox.ack_run(run)
                    run.failed = False
                    continue
                acks[root] = acks.get(root, 0) ^ edge ^ run.children
                if run.mask:
                    workers[root] = workers.get(root, 0) | run.mask

    @staticmethod
    def _join(collector: BasicCollector, others: tuple[tuple[int, int], ...]) -> None:
        """Runs of several trees: emits continue a run only if they are anchored to the very same input."""
        run = collector.run
        run.others = others
        if others:
            collector.key = object()

    def _process_plain(self, task: BoltTask, batch: Batch) -> None:
        execute = task.execute
        source = self._source_of(batch.source, batch.stream)
        rows, ends, others = batch.rows, batch.starts[1:], batch.others
        ends.append(len(rows))
        begin = 0
        for index, (root, edge, end) in enumerate(zip(batch.roots, batch.edges, ends, strict=True)):
            run = Run(root, edge, end - begin, others[index] if others and index in others else ())
            for row in rows[begin:end]:
                tup = Tuple(row, source, run)
                try:
                    execute(tup)
                except FailedTuple as failed:
                    self._finish(task, tup)
                    self.outbox.fail_run(run, self.failure(task, FAILED, str(failed)))
                except Exception as error:
                    self._finish(task, tup)
                    self._raised(task, run, error)
            begin = end

    @staticmethod
    def _finish(task: BoltTask, tup: Tuple) -> None:
        """A tuple whose `execute` raised is done, unless the bolt had acked or failed it before."""
        if not tup._done:
            tup._done = True
            tup._run.remaining -= 1
            if not tup.is_tick:
                task.stats.failed += 1

    def _raised(self, task: BoltTask, run: Run, error: Exception) -> None:
        """User code raised something: fail the trees at hand, then die of it or carry on, as configured."""
        self.outbox.fail_run(run, self.failure(task, EXCEPTION, describe(error)))
        if self._crash:
            task.stats.errors += 1
            raise TaskCrashed(task.component, task.task, "execute", error) from error
        self.collectors[task.task].report_error(error)

    def failure(self, task: BoltTask, reason: str, error: str) -> Failure:
        """A failure in one of the tasks."""
        return Failure(reason, task.component, task.task, self._worker, error)
