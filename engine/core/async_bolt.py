"""An executor with an event loop in a thread of its own, for `AsyncBolt`: many tuples in `execute` at a time.

Guarantees
    * At most `max_in_flight` tuples of the executor are in `execute`; the next ones wait in its queue, so back-pressure
      works as for any bolt.
    * Only the thread touches outbox, emitters and collectors: what another one (`asyncio.to_thread`) emits, acks and
      fails is done by it while that one waits. What coroutines emit, ack and fail is handed over to the worker's loop
      at the end of the event loop's turn in which a tuple ends, or a few milliseconds after the emit.
    * The topology is not drained before every tuple has ended and its output is handed over.
    * A component that stops the loop, or cancels what runs on it, ends the worker.
    * A tuple that takes longer than `execute_timeout_secs` is cancelled and failed; `reset_timeout` gives it that time
      anew. If it goes on all the same, or the loop itself stands still that long (a coroutine that blocks), the worker
      ends, as for blocking bolts.
    * At an orderly end coroutines are cancelled, then `teardown` runs; their tuples are not acked.

Thread: one for each executor, and the worker's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from itertools import islice
from threading import get_ident
from typing import Any

from squall.engine.api.async_component import own_loop
from squall.engine.api.failure import HUNG
from squall.engine.api.stream import TICK_STREAM
from squall.engine.api.tuple import Tuple
from squall.engine.core.blocking import BlockingExecutor, Handover
from squall.engine.core.emit_paths import wrap
from squall.engine.core.executor import BoltTask, TaskCrashed, TaskHung
from squall.engine.flow.batch import Batch

_LOOK_SECS = 0.005
"""Between two looks for output of coroutines that have not ended yet."""
_IDLE_LOOK_SECS = 0.05
"""The same while nothing is in `execute`: a coroutine that was left behind may emit still."""
_TEARDOWN_SECS = 3.0
"""Longest time for `teardown`: shorter than the wait for the thread."""


_doing: ContextVar[asyncio.Task[None] | None] = ContextVar("the execute in which this was begun", default=None)
"""Tasks and threads (`asyncio.to_thread`) that a coroutine begins have it too."""


class _Lot:
    """Tuples that were given together: when the last one has ended, their sender is told."""

    __slots__ = ("batch", "done", "left", "task")

    def __init__(self, task: BoltTask, batch: Batch, done: Callable[[], None] | None) -> None:
        self.task, self.batch, self.done = task, batch, done
        self.left = len(batch.rows)


class AsyncExecutor(BlockingExecutor):
    """Runs the tasks of an AsyncBolt. Thread: its own for names with an underscore, the worker's loop for the rest."""

    def _take_tasks(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.in_flight: dict[asyncio.Task[None], tuple[BoltTask, Tuple, asyncio.Timeout]] = {}
        """The tuples in `execute`, and their time limits."""
        self._early: list[_Lot] | None = []
        """What came before `setup` has ended; None afterwards."""
        self._ended: list[Callable[[], None]] = []
        self._ended_by: TaskCrashed | None = None
        self._look_again_at = 0.0
        for task in self.tasks:
            wrap(task.collector, lambda name, call: self._on_loop(call), "emit", "emit_direct", "ack", "fail")

    # ---- called by the worker's loop ----

    def most_rows(self, task: BoltTask) -> int:
        return task.at_once

    def put(self, task: BoltTask, batch: Batch, done: Callable[[], None] | None) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._begin, _Lot(task, batch, done))

    @property
    def at_hand(self) -> int:
        """A number that changes while the event loop turns; 0 = no tuple is in `execute`."""
        return self._calls + 1 if self.in_flight else 0

    @property
    def busy(self) -> bool:
        """Whether the thread has tuples or ticks, which the end of the worker would cancel."""
        return self._given > 0

    def _at_hand_now(self) -> tuple[BoltTask, Sequence[int]] | None:
        current = asyncio.current_task(self._loop)
        found = None if current is None else self.in_flight.get(current)
        return None if found is None else (found[0], found[1]._run.trees())

    # ---- any thread ----

    def _on_loop(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function that calls `call` on the event loop, and returns or raises what it does."""

        def called(*arguments: Any, **named: Any) -> Any:
            if get_ident() == self._thread.ident:
                return call(*arguments, **named)
            answer: Future[Any] = Future()

            def answers() -> None:
                try:
                    answer.set_result(call(*arguments, **named))
                except BaseException as error:
                    answer.set_exception(error)

            self._loop.call_soon_threadsafe(answers)
            return answer.result()

        return called

    def _reset(self, roots: Iterable[int]) -> None:
        """Pass on a reset of a timeout, and give the tuple for which it is called its time anew."""
        if (doing := _doing.get()) is not None:
            self._loop.call_soon_threadsafe(self._extend, doing)
        super()._reset(roots)

    # ---- the thread ----

    def _extend(self, doing: asyncio.Task[None]) -> None:
        """Give a tuple that is still in `execute` its time anew."""
        _, _, limit = self.in_flight.get(doing, (None, None, None))
        if limit is not None and not limit.expired() and self.execute_timeout_secs is not None:
            limit.reschedule(self._loop.time() + self.execute_timeout_secs)

    def _run(self) -> None:
        try:
            with own_loop(), asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._main())
        except BaseException as error:
            # A component stopped the loop, or cancelled all that runs on it: the worker must not wait for a thread that
            # is gone, whatever `on_error` says.
            first = self.tasks[0]
            crash = TaskCrashed(first.component, first.task, "its event loop", error)
            if self._stopping:
                self.end_errors.append(crash)
            else:
                self._ended_by = crash
                self._hand_over()
        if self._ended_by is None:
            self._thread.close_tasks()

    async def _main(self) -> None:
        try:
            await self._each("setup", "_set_up")
            early, self._early = self._early or (), None
            for lot in early:
                self._begin(lot)
            while self._ended_by is None and not self._stopping:
                # Hand over what coroutines emit before they end, and show that the loop turns.
                await asyncio.sleep(_LOOK_SECS if self.in_flight else _IDLE_LOOK_SECS)
                self._calls += 1
                self._look_for_hung()
                self._hand_over()
            await self._end()
        except TaskCrashed as crash:
            self._ended_by = crash
            self._hand_over()

    async def _each(self, doing: str, method: str) -> None:
        for task in self.tasks:
            try:
                await getattr(task.user, method)()
            except BaseException as error:
                raise TaskCrashed(task.component, task.task, doing, error) from error

    def _begin(self, lot: _Lot) -> None:
        """Begin to execute tuples."""
        if self._early is not None:
            self._early.append(lot)
            return
        batch, rows = lot.batch, iter(lot.batch.rows)
        source = self.source_of(batch.source, batch.stream)
        for run in batch.runs():
            run.number = -1  # it is acked by itself
            for row in islice(rows, run.remaining):
                tup, limit = Tuple(row, source, run), asyncio.timeout(self.execute_timeout_secs)
                begun = asyncio.create_task(self._execute(lot, tup, limit))
                self.in_flight[begun] = lot.task, tup, limit
                begun.add_done_callback(self.in_flight.pop)

    async def _execute(self, lot: _Lot, tup: Tuple, limit: asyncio.Timeout) -> None:
        task, begin_ns = lot.task, self.now_ns()
        _doing.set(asyncio.current_task())
        try:
            async with limit:
                value = task.execute(tup)
                if inspect.isawaitable(value):
                    value = await value
                if value is not None:
                    task.returned(value)
        except asyncio.CancelledError as error:
            if self._stopping or self._ended_by is not None:
                return
            self._refuse(task, tup, error)
        except BaseException as error:
            if limit.expired():
                why = f"in execute for more than {self.execute_timeout_secs:g} s, its execute_timeout_secs"
                self.fail_plain(task, tup, self.failure(task, HUNG, why))
            else:
                self._refuse(task, tup, error)
        self._count(lot, tup, self.now_ns() - begin_ns)
        for watch in self.watches:
            watch.ended(task, tup, begin_ns)

    def _refuse(self, task: BoltTask, tup: Tuple, error: BaseException) -> None:
        try:
            self.refuse_plain(task, tup, error)
        except TaskCrashed as crash:
            self._ended_by = crash

    def _count(self, lot: _Lot, tup: Tuple, spent_ns: int) -> None:
        """Count a tuple that has ended."""
        self._calls += 1
        task, stats = lot.task, lot.task.stats
        stats.execute_ns += spent_ns
        lot.left -= 1
        self._loop.call_soon(self._hand_over)
        if lot.batch.stream == TICK_STREAM:
            task.ticks_done += 1
            self._loop.call_soon(self._tick_ended)
        else:
            stats.executed += 1
            if not tup._run.root:
                stats.untracked_executed += 1
            self._ended.append(partial(self.ended, 1, None if lot.left else lot.done))
        task.processed += 1
        if not lot.left:
            task.processed_bytes += lot.batch.bytes

    def _look_for_hung(self) -> None:
        """End the worker, after failing its trees, if a tuple that was cancelled is still in `execute` after that time
        once more: it keeps its place until then, and would for ever."""
        secs, now = self.execute_timeout_secs, self._loop.time()
        if secs is None or now < self._look_again_at:
            return
        self._look_again_at = now + secs / 4
        for begun, (task, tup, limit) in self.in_flight.items():
            ends = limit.when()
            if ends is not None and now > ends + secs:
                stack = io.StringIO()
                begun.print_stack(file=stack)
                hung = TaskHung(task.component, task.task, round(now - ends + secs, 1), secs, stack.getvalue())
                self.fail_plain(task, tup, self.failure(task, HUNG, hung.error_text))
                self._ended_by = hung
                return

    def _hand_over(self) -> None:
        if self.outbox or self._ended or self._ended_by is not None:
            ended, self._ended = self._ended, []
            self._post(Handover(self.outbox, ended, self._ended_by))

    async def _end(self) -> None:
        """Cancel what is in flight; at an orderly end, tear down."""
        begun = list(self.in_flight)
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        if self._ended_by is not None:
            return
        try:
            async with asyncio.timeout(_TEARDOWN_SECS):
                await self._each("teardown", "teardown")
        except TaskCrashed as crash:
            self.end_errors.append(crash)
        except TimeoutError as error:
            first = self.tasks[0]
            self.end_errors.append(TaskCrashed(first.component, first.task, "teardown", error))
