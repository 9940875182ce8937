"""Executors: call user code with tuples and turn its result into acks and failures.

Guarantees
    * A task's methods are called one at a time, by one thread.
    * The tuples of a run are executed in order; the run is acked after its last tuple is done, never before. Runs are
      acked together when a batch, or a slice of it, has been executed, but for those that failed or that a bolt keeps.
    * An exception of user code never counts as success: it becomes a `TaskCrashed` that says which task, which tuple
      and why, after the trees at hand have been marked failed.
    * An exception of `execute_batch` fails every tree at hand. It accuses none of them if there are several: each may
      be the cause (`Failure.among`), so each is tried alone if it happens again.

No I/O: time comes from a clock, tuples come in batches, results go to an outbox.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from functools import partial
from itertools import islice
from sys import getrefcount
from typing import Any, TypeVar

from squall.engine.api.columns import ColumnBatch, Columns
from squall.engine.api.component import BasicBolt, BatchBolt, Bolt
from squall.engine.api.config import Config
from squall.engine.api.failure import FAILED, UNAVAILABLE, Failure, reason_of
from squall.engine.api.stream import TICK_STREAM
from squall.engine.api.topology import ComponentSpec
from squall.engine.api.tuple import UNSHARED, UNTRACKED, Tuple, TupleSource
from squall.engine.core.pace import FIRST_EMITS, SLICE_NS, CallCost
from squall.engine.core.surroundings import Surroundings
from squall.engine.errors import FailedTuple, SquallError, Unavailable
from squall.engine.flow.batch import Batch
from squall.engine.flow.bolt_collectors import BasicCollector, BatchCollector
from squall.engine.flow.outbox import Outbox
from squall.engine.foreign.methods import Returned
from squall.engine.foreign.text import line_of_error, repr_of, text_of_error, traceback_of, where_of
from squall.engine.report.metrics import TaskStats, Words

T = TypeVar("T")


SourceOf = Callable[[int, str], TupleSource]
AnyBolt = Bolt | BasicBolt | BatchBolt
Done = Callable[[], None] | None
AtHand = Words
"""One word: the task whose code a loop is in, 0 = none. Read by the supervisor when it finds the loop hung."""


Process = Callable[["BoltTask", Batch], None]
"""Executes a batch."""


class Watch:
    """Told of the batches of a worker (see `engine.core.watch`)."""

    def left(self, batch: Batch) -> None:
        """A batch left its task."""

    def arrived(self, batch: Batch) -> None:
        """A batch is about to be put in its task's queue."""

    def execute(self, process: Process, task: BoltTask, batch: Batch) -> None:
        """Execute a batch by `process`, or by it in pieces. Thread: the executor's."""
        process(task, batch)

    def ended(self, task: BoltTask, tup: Tuple, began_ns: int) -> None:
        """A coroutine that executed a tuple has ended. Thread: the executor's."""

    def acked(self, task: int, roots: Container[int]) -> None:
        """Messages of a spout task here are processed; told before the spout is."""

    def failed(self, task: int, message_ids: Sequence[Any], failure: Failure) -> None:
        """Messages of a spout task here have failed."""


class TaskCrashed(SquallError):
    """User code raised, and the policy is to end the worker."""

    def __init__(self, component: str, task: int, doing: str, error: BaseException) -> None:
        self.component = component
        self.task = task
        self.error_text = text_of_error(error)
        # Frames of Squall's alone tell no more than its own error's text, such as that of a program that is not there.
        users = where_of(error) or where_of(error.__cause__) or not isinstance(error, SquallError)
        self.traceback_text = traceback_of(error) if users else ""
        super().__init__(f"{component}[{task}] raised {self.error_text} in {doing} {where_of(error)}".rstrip())


def call_for(component: str, task: int, doing: str, call: Callable[[], T]) -> T:
    """Call a task's code. Raises TaskCrashed for whatever it raises."""
    try:
        return call()
    except BaseException as error:
        raise TaskCrashed(component, task, doing, error) from error


def _call_all(calls: Iterable[Done]) -> None:
    for call in calls:
        if call is not None:
            call()


class TaskHung(TaskCrashed):
    """User code did not return, and only the end of its worker ends it."""

    def __init__(self, component: str, task: int, secs: float, limit_secs: float, stack: str) -> None:
        self.component = component
        self.task = task
        self.error_text = f"in execute for {secs:g} s, execute_timeout_secs is {limit_secs:g}"
        self.traceback_text = stack
        SquallError.__init__(self, f"{component}[{task}] hung {self.error_text}")


class BoltTask:
    """One task of a bolt, whichever kind: its queue, its counters, its user object."""

    __slots__ = (
        "at_once", "collector", "component", "cost", "execute", "execute_name", "inbox", "noted", "outermost",
        "processed", "processed_bytes", "received", "received_bytes", "returned", "row_ns", "slice_rows", "stats",
        "task", "tick_ns", "ticks_at_ns", "ticks_done", "ticks_put", "user", "wait_ns", "waits_until_ns",
    )

    def __init__(self, component: str, task: int, user: AnyBolt, stats: TaskStats, tick_secs: float | None):
        self.component = component
        self.task = task
        self.user = user
        self.outermost: Any = user
        """The user's object, or what `engine.core.hook_calls` puts around it."""
        self.execute: Callable[..., Any]
        """Its method that takes tuples, as `enter` found it once it was prepared."""
        self.collector: Any = None
        """Of the bolt's kind; set when the task is prepared."""
        self.noted: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
        """Of a task with a thread of its own: wraps an `execute` so that the thread's watch sees each call."""
        self.execute_name = "execute_batch" if isinstance(user, BatchBolt) else "execute"
        self.returned = Returned(component, task, self.execute_name)
        """Called with the value that `execute` returns, unless it is None."""
        self.at_once = 0
        """Tuples that it may have in `execute` at a time beside the worker's loop; 0: it runs in the loop."""
        self.stats = stats
        self.inbox: deque[tuple[Batch, Done]] = deque()
        self.received = 0
        """Tuples put in the inbox so far (counted by the thread that puts them)."""
        self.processed = 0
        """Tuples taken out and done (counted by the thread that executes them)."""
        self.received_bytes = 0
        self.processed_bytes = 0
        """Estimated memory of these, counted likewise."""
        self.slice_rows = 1
        """Tuples that it is expected to execute in a slice; one at first, while its time per tuple is unknown."""
        self.row_ns = 0
        """Time per tuple of the last ones that were executed."""
        self.cost: CallCost | None = None
        """Of a batch bolt, unless order must not depend on time."""
        self.wait_ns = self.waits_until_ns = 0
        """How long a call waits for its rows at most, and until when it does now; 0: it does not."""
        self.tick_ns = round(tick_secs * 1e9) if tick_secs else 0
        self.ticks_at_ns = 0
        self.ticks_put = self.ticks_done = 0
        """Ticks of `received` and `processed`; no published counter includes them."""

    def enter(self) -> None:
        """Execute by the outermost object's method from now on, as it is now: `prepare` may have put another there."""
        execute = getattr(self.outermost, self.execute_name)
        self.execute = execute if self.noted is None else self.noted(execute)

    def refresh_stats(self) -> None:
        """Bring the gauges and derived counters of `stats` up to date."""
        stats = self.stats
        stats.emitted, stats.in_queue = self.collector.emitter.emitted, self.in_queue
        if isinstance(self.user, BasicBolt | BatchBolt):
            stats.acked = max(0, stats.executed - stats.failed)  # a thread counts failures first

    @property
    def in_queue(self) -> int:
        """Tuples that wait to be executed."""
        return self.received - self.processed - (self.ticks_put - self.ticks_done)

    @property
    def queued_bytes(self) -> int:
        """Estimated memory of its queue."""
        return self.received_bytes - self.processed_bytes


class BoltExecutor:
    """Runs the tasks of one bolt that share an executor."""

    def __init__(
        self, spec: ComponentSpec, tasks: list[BoltTask], outbox: Outbox, source_of: SourceOf, config: Config,
        around: Surroundings, most_bytes: int,
    ) -> None:
        """`most_bytes`: in the outbox when a long batch is interrupted, where order must not depend on time."""
        self.tasks = tasks
        self.outbox = outbox
        self._new_edge = outbox.edges.next
        """See `Batch.split`: of the thread that joins batches."""
        self.now_ns = around.now_ns
        self.source_of = source_of
        self._around = around
        self._crash = config.on_error == "crash"
        self._at_hand: AtHand = around.at_hand
        self._slice_ns = slice_ns = SLICE_NS if around.timed else None
        self._most_bytes = most_bytes
        if slice_ns is None:
            for task in tasks:
                task.slice_rows = FIRST_EMITS  # what it emits for each is not known yet
        self.watches: Sequence[Watch] = ()
        """See what it executes (`engine.core.watch`)."""
        self.held = 0
        """How many of the tasks it can send to are full. While there are any, it is not run."""
        self.acted = False
        """True once it has done anything but ticks that led to nothing; cleared by the core."""
        user = tasks[0].user
        self._process = self._process_plain
        if isinstance(user, BasicBolt):
            self._process = self._process_basic
        elif isinstance(user, BatchBolt):
            self._process = self._process_whole
            batch_rows = spec.config.get("batch_rows", config.batch_rows) or 0
            wait_ms = spec.config.get("batch_wait_ms", config.batch_wait_ms)
            wait_ns = round(min(1e6 * wait_ms, 5e8 * config.message_timeout_secs))
            for task in tasks if slice_ns or batch_rows else ():
                task.cost = CallCost(slice_ns or 0, batch_rows)
                if batch_rows:
                    task.slice_rows, task.wait_ns = batch_rows, wait_ns if around.threads else 0
        self.fixed_ns = 0.0
        """Time that calls took whatever they were given, since the worker's core has looked."""

    def run(self) -> bool:
        """Process the batches in the tasks' inboxes; return True if there were any."""
        worked = False
        for task in self.tasks:
            inbox = task.inbox
            # Batches that arrive meanwhile (of a bolt that feeds itself) wait for the next turn, so that others get
            # theirs.
            if not (left := len(inbox)):
                continue
            until_ns = task.stats.execute_ns + (self._slice_ns or 0)
            while left and not (task.wait_ns and self._waits(task)):
                worked = True
                batch, done = self._next(task)
                left = len(inbox)
                if self.process(task, batch):
                    inbox.appendleft((batch, done))
                    left += 1
                elif done is not None:
                    done()
                if batch.stream != TICK_STREAM or self.outbox:
                    self.acted = True
                if task.stats.execute_ns >= until_ns if self._slice_ns else self.outbox.bytes >= self._most_bytes:
                    break
        return worked

    def _waits(self, task: BoltTask) -> bool:
        """Return True if a call has too few rows, and time to wait for others. It does not if as many bytes wait as
        others may send, or a tick."""
        until_ns, task.waits_until_ns = task.waits_until_ns, 0
        ticks = task.ticks_put - task.ticks_done
        if ticks or task.in_queue >= task.slice_rows or task.queued_bytes >= self._most_bytes:
            return False
        now_ns = self.now_ns()
        if until_ns and now_ns >= until_ns:
            return False
        task.waits_until_ns = until_ns or now_ns + task.wait_ns
        return True

    def _next(self, task: BoltTask) -> tuple[Batch, Done]:
        """Take the next batch of its inbox. If that is too short for what a call costs, later batches of the same
        stream, or the first rows of one, are joined to it. Others keep their places, before what is left of it: streams
        take turns."""
        inbox = task.inbox
        batch, first_done = inbox.popleft()
        if task.cost is None or not inbox or batch.stream == TICK_STREAM:
            return batch, first_done
        wanted, rows, parts = min(task.slice_rows, task.cost.worth_rows), len(batch.rows), [batch]
        others, dones, component = [], [first_done], self.source_of(batch.source, batch.stream).component
        while inbox and rows < wanted:
            other, done = inbox.popleft()
            if batch.continues_with(other) and component == self.source_of(other.source, other.stream).component:
                if len(other.rows) > (room := task.slice_rows - rows):
                    others.append((other, done))
                    other, done = other.split(room, self._new_edge), None
                rows += len(other.rows)
                parts.append(other)
                dones.append(done)
            else:
                others.append((other, done))
        inbox.extendleft(reversed(others))
        return (Batch.join(parts), partial(_call_all, dones)) if len(parts) > 1 else (batch, first_done)

    def process(self, task: BoltTask, batch: Batch) -> bool:
        """Execute a batch, or as much of it as fits a slice; return True if there is more, left in it."""
        count, number, now_ns = len(batch.rows), task.task, self.now_ns
        more = count > task.slice_rows
        if more:
            count = task.slice_rows
            batch = batch.split(count, self.outbox.edges.next)
        before_bytes = 0 if self._slice_ns else self.outbox.bytes
        size_bytes, untracked = batch.bytes, batch.untracked_rows()
        process, begin = self._process, now_ns()
        for watch in self.watches:
            process = partial(watch.execute, process)
        self._at_hand[0] = number
        try:
            process(task, batch)
        finally:
            self._at_hand[0] = 0
            stats = task.stats
            spent_ns = now_ns() - begin
            stats.execute_ns += spent_ns
            if batch.stream == TICK_STREAM:
                task.ticks_done += count
            else:
                stats.executed += count
                stats.untracked_executed += untracked
                task.row_ns = spent_ns // count
                if task.cost is not None:
                    task.slice_rows = task.cost.called(count, spent_ns, task.slice_rows)
                    self.fixed_ns += task.cost.fixed_ns
                elif self._slice_ns:
                    task.slice_rows = count * self._slice_ns // (spent_ns or 1) or 1
                else:
                    task.slice_rows = count * self._most_bytes // max(1, self.outbox.bytes - before_bytes) or 1
            # Last: a loop that looks meanwhile sees too many in the queue, never too few.
            task.processed += count
            task.processed_bytes += size_bytes
        return more

    def _process_basic(self, task: BoltTask, batch: Batch) -> None:
        collector: BasicCollector = task.collector
        source, failed = self.source_of(batch.source, batch.stream), set()
        # As locals: read for each tuple.
        execute, refcount, unshared = task.execute, getrefcount, UNSHARED
        tup = Tuple((), source, UNTRACKED)
        rows, owners = collector.begin(batch)
        try:
            while True:
                try:
                    if owners is None:
                        for tup.values in rows:
                            if (value := execute(tup, collector)) is not None:
                                task.returned(value)
                            if refcount(tup) != unshared:
                                # The bolt kept it: the next one gets an object of its own.
                                tup = Tuple((), source, UNTRACKED)
                    else:
                        for collector.key, tup.values in zip(owners, rows, strict=True):
                            if (value := execute(tup, collector)) is not None:
                                task.returned(value)
                            if refcount(tup) != unshared:
                                tup = Tuple((), source, UNTRACKED)
                    break
                except BaseException as error:
                    # Also `sys.exit`: it must not end the worker by itself, without a report.
                    failed.add(collector.run_at_hand())
                    self._raised_basic(task, batch, collector, error, tup.values)
                # The bolt may have kept this one before it raised.
                tup = Tuple((), source, UNTRACKED)
        except TaskCrashed:
            # What was executed before is acked, the rest dies with the worker.
            failed.update(range(collector.run_at_hand(), batch.run_count))
            raise
        finally:
            collector.end()
            self.outbox.ack_batch(batch, collector.anchoring, failed)

    def _raised_basic(
        self, task: BoltTask, batch: Batch, collector: BasicCollector, error: BaseException, values: Any
    ) -> None:
        if batch.stream != TICK_STREAM:
            task.stats.failed += 1
        # The tree has failed, but its other tuples are executed all the same, as in Storm.
        self.outbox.fail_roots(collector.trees(), self.failure_of(task, error, (values,)))
        self.end_or_go_on(task, error)

    def _process_plain(self, task: BoltTask, batch: Batch) -> None:
        execute, collector = task.execute, task.collector
        source, rows = self.source_of(batch.source, batch.stream), iter(batch.rows)
        try:
            for run in collector.begin(batch):
                collector.run = run
                for row in islice(rows, run.remaining):
                    tup = Tuple(row, source, run)
                    try:
                        if (value := execute(tup)) is not None:
                            task.returned(value)
                    except BaseException as error:
                        self.refuse_plain(task, tup, error)
        finally:
            collector.end()

    def refuse_plain(self, task: BoltTask, tup: Tuple, error: BaseException) -> None:
        """`execute` of a bolt that acks itself raised an error. Raises TaskCrashed if the worker shall end."""
        self.fail_plain(task, tup, self.failure_of(task, error, (tup.values,)))
        self.end_or_go_on(task, error)

    def fail_plain(self, task: BoltTask, tup: Tuple, failure: Failure) -> None:
        """Fail a tuple whose `execute` did not end as it should."""
        self._finish(task, tup)
        self.outbox.fail_run(tup._run, failure)

    @staticmethod
    def _finish(task: BoltTask, tup: Tuple) -> None:
        """Finish a tuple whose `execute` raised, unless the bolt had acked or failed it before."""
        if not tup._done:
            tup._done = True
            tup._run.remaining -= 1
            if not tup.is_tick:
                task.stats.failed += 1

    def end_or_go_on(self, task: BoltTask, error: BaseException) -> None:
        """Handle an exception of user code, once the trees at hand have failed: end or go on, as configured. That of a
        FailedTuple is then done."""
        if issubclass(type(error), FailedTuple):
            return
        task.stats.errors += 1
        if self._crash or (self._around.interrupts and issubclass(type(error), KeyboardInterrupt)):
            raise TaskCrashed(task.component, task.task, task.execute_name, error) from error
        self._around.report_error(task.component, task.task, f"{text_of_error(error)} {where_of(error)}".rstrip())

    def failure(self, task: BoltTask, reason: str, error: str) -> Failure:
        """Make a failure of one of the tasks."""
        return Failure(reason, task.component, task.task, self._around.worker, error)

    def failure_of(self, task: BoltTask, error: BaseException, rows: Sequence[Any], among: int = 1) -> Failure:
        """Make the failure of the rows that were given to the user's code, which raised."""
        if issubclass(type(error), FailedTuple):
            reason = UNAVAILABLE if issubclass(type(error), Unavailable) else FAILED
            return self.failure(task, reason, line_of_error(error))
        given = f"tuple {repr_of(tuple(*rows))}" if len(rows) == 1 else f"a batch of {len(rows):,} rows"
        return Failure(
            reason_of(error), task.component, task.task, self._around.worker, text_of_error(error), among=among,
            where=f"{where_of(error)} with {given}".lstrip(),
        )

    def _process_whole(self, task: BoltTask, batch: Batch) -> None:
        """Execute the rows of a batch in one call. Raises TaskCrashed."""
        collector: BatchCollector = task.collector
        collector.begin(batch)
        given = ColumnBatch(Columns.of(batch.rows), self.source_of(batch.source, batch.stream))
        error: BaseException | None = None
        try:
            if (value := task.execute(given, collector)) is not None:
                task.returned(value)
        except BaseException as raised:
            # Also `sys.exit`: it must not end the worker by itself, without a report.
            error = raised
        if error is None:
            failed: Collection[int] = self._fail_rows(task, collector)
            failures = len(collector.failed)
        else:
            failed, failures = range(len(collector.runs)), len(batch.rows)
            among = len({root for root in batch.roots if root})
            self.outbox.fail_roots(collector.trees(), self.failure_of(task, error, batch.rows, among))
        if batch.stream != TICK_STREAM:
            task.stats.failed += failures
        # Failed runs are not acked: their trees wait for nothing any more.
        self.outbox.ack_batch(batch, collector.anchoring, failed)
        if error is not None:
            self.end_or_go_on(task, error)

    def _fail_rows(self, task: BoltTask, collector: BatchCollector) -> set[int]:
        """Fail the trees of the rows that the bolt failed; returns their runs."""
        failed = set()
        for row, why in collector.failed.items():
            run = collector.run_of(row)
            failed.add(run)
            self.outbox.fail_roots(collector.anchoring.trees_of(run), self.failure(task, FAILED, why))
        return failed
