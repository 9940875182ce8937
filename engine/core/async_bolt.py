"""An executor with an event loop in a thread of its own, for `AsyncBolt`: many tuples in `execute` at a time.

Guarantees
    * At most `max_in_flight` tuples of the executor are in `execute`; the next ones wait in its queue, so back-pressure
      works as for any bolt. It starts no tuple while a bolt that it feeds is full.
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
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from typing import Any

from squall.engine.api.async_component import own_loop
from squall.engine.api.failure import HUNG
from squall.engine.api.stream import TICK_STREAM
from squall.engine.api.tuple import Run, Tuple
from squall.engine.core.blocking import BlockingExecutor, Handover
from squall.engine.core.executor import BoltExecutor, BoltTask, TaskCrashed, TaskHung
from squall.engine.errors import ComponentError
from squall.engine.flow.batch import Batch
from squall.engine.flow.collectors import BoltPaths

_LOOK_SECS = 0.005
"""Between two looks for output of coroutines that have not ended yet."""
_IDLE_LOOK_SECS = 0.05
"""The same while nothing is in `execute`: a coroutine that was left behind may emit still."""
_TEARDOWN_SECS = 3.0
"""Longest time for `teardown`: shorter than the wait for the thread."""


_doing: ContextVar[asyncio.Task[None] | None] = ContextVar("the execute in which this was begun", default=None)
"""Tasks and threads (`asyncio.to_thread`) that a coroutine begins have it too."""


class _Lot:
    """A batch under way: when its last tuple has ended, its sender is told."""

    __slots__ = ("batch", "done", "left", "task")

    def __init__(self, task: BoltTask, batch: Batch, done: Callable[[], None] | None) -> None:
        self.task, self.batch, self.done = task, batch, done
        self.left = len(batch.rows)


class AsyncExecutor(BlockingExecutor):
    """Runs the tasks of an AsyncBolt. Thread: its own for names with an underscore, the worker's loop for the rest."""

    def __init__(self, executor: BoltExecutor, *arguments: Any, max_in_flight: int, **named: Any) -> None:
        super().__init__(executor, *arguments, **named)
        self._max_in_flight = self.at_once = max_in_flight
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._in_flight: dict[asyncio.Task[None], tuple[BoltTask, Tuple]] = {}
        self.limits: dict[asyncio.Task[None], asyncio.Timeout] = {}
        """The time limits of the tuples in `execute`."""
        self._ended: list[Callable[[], None]] = []
        self._crash: TaskCrashed | None = None
        self._look_again_at = 0.0

    def start(self) -> None:
        self.executor.outbox.pass_resets_to(self._reset)
        for collector in self.executor.collectors.values():
            collector.use(
                BoltPaths(*map(self._on_loop, (collector.emit, collector.emit_direct, collector.ack, collector.fail)))
            )
        self._thread.start()

    # ---- called by the worker's loop ----

    def put(self, task: BoltTask, batch: Batch, done: Callable[[], None] | None) -> None:
        super().put(task, batch, done)
        self._poke()

    def hold(self, step: int) -> None:
        super().hold(step)
        self._poke()

    def _took(self, size_bytes: int) -> None:
        super()._took(size_bytes)
        self._poke()

    def stop(self) -> None:
        self._stopping = True
        self._poke()
        super().stop()

    def _poke(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._news.set)

    @property
    def at_hand(self) -> int:
        """A number that changes while the event loop turns; 0 = no tuple is in `execute`."""
        return self._calls + 1 if self._in_flight else 0

    def _at_hand_now(self) -> tuple[BoltTask, Sequence[int]] | None:
        loop = self._loop
        current = None if loop is None else asyncio.current_task(loop)
        found = None if current is None else self._in_flight.get(current)
        return None if found is None else (found[0], found[1]._run.trees())

    # ---- any thread ----

    def _on_loop(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function that calls `call` on the event loop, and returns or raises what it does."""
        ident = threading.get_ident

        def called(*arguments: Any, **named: Any) -> Any:
            if ident() == self._thread.ident:
                return call(*arguments, **named)
            loop = self._loop
            if loop is None:
                raise ComponentError(
                    f"{self._thread.name} uses its collector in a thread before its event loop runs; allowed: in "
                    "execute, setup and what they begin"
                )
            answer: Future[Any] = Future()

            def answers() -> None:
                try:
                    answer.set_result(call(*arguments, **named))
                except BaseException as error:
                    answer.set_exception(error)

            loop.call_soon_threadsafe(answers)
            return answer.result()

        return called

    def _reset(self, roots: Iterable[int]) -> None:
        """Pass on a reset of a timeout, and give the tuple for which it is called its time anew."""
        doing, loop = _doing.get(), self._loop
        if doing is not None and loop is not None:
            loop.call_soon_threadsafe(self._extend, doing)
        super()._reset(roots)

    # ---- the thread ----

    def _extend(self, doing: asyncio.Task[None]) -> None:
        """Give a tuple that is still in `execute` its time anew."""
        limit = self.limits.get(doing)
        if limit is None or limit.expired():
            return
        if self.execute_timeout_secs is not None and self._loop is not None:
            limit.reschedule(self._loop.time() + self.execute_timeout_secs)

    def _run(self) -> None:
        try:
            with own_loop(), asyncio.Runner() as runner:
                runner.run(self._main())
        except BaseException as error:
            # A component stopped the loop, or cancelled all that runs on it: the worker must not wait for a thread that
            # is gone, whatever `on_error` says.
            first = self.executor.tasks[0]
            crash = TaskCrashed(first.component, first.task, "its event loop", error)
            if self._stopping:
                self.end_error = crash
            else:
                self._crash = crash
                self._hand_over()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        rows = self._rows()
        try:
            await self._each("setup", "_set_up")
            looking = asyncio.create_task(self._look())
            while self._crash is None and not self._stopping:
                self._news.clear()
                self._begin(rows)
                await self._news.wait()
            looking.cancel()
            await self._end()
        except TaskCrashed as crash:
            self._crash = crash
        self._hand_over()

    async def _each(self, doing: str, method: str) -> None:
        for task in self.executor.tasks:
            try:
                await getattr(task.user, method)()
            except BaseException as error:
                raise TaskCrashed(task.component, task.task, doing, error) from error

    def _begin(self, rows: Iterator[tuple[_Lot, Tuple] | None]) -> None:
        """Begin as many tuples as there is room for."""
        while len(self._in_flight) < self._max_in_flight and not self.must_wait and not self._stopping:
            if (found := next(rows)) is None:
                return
            lot, tup = found
            begun = asyncio.create_task(self._execute(lot, tup))
            self._in_flight[begun] = lot.task, tup
            begun.add_done_callback(self._forget)

    def _forget(self, begun: asyncio.Task[None]) -> None:
        del self._in_flight[begun]
        self._news.set()

    def _rows(self) -> Iterator[tuple[_Lot, Tuple] | None]:
        """The next tuple of the queue, again and again; None if there is none now."""
        while True:
            if self._queue.empty() or (work := self._queue.get()) is None:
                yield None
                continue
            task, batch, done = work
            lot = _Lot(task, batch, done)
            source = self.executor.source_of(batch.source, batch.stream)
            ends, others = [*batch.starts[1:], len(batch.rows)], batch.others or {}
            for index, (root, edge, begin, end) in enumerate(
                zip(batch.roots, batch.edges, batch.starts, ends, strict=True)
            ):
                run = Run(root, edge, end - begin, others.get(index, ()))
                for row in batch.rows[begin:end]:
                    yield lot, Tuple(row, source, run)

    async def _execute(self, lot: _Lot, tup: Tuple) -> None:
        task, executor, begin_ns = lot.task, self.executor, self.executor.now_ns()
        me: Any = asyncio.current_task()
        limit = asyncio.timeout(self.execute_timeout_secs)
        self.limits[me] = limit
        _doing.set(me)
        try:
            async with limit:
                value = task.execute(tup)
                if inspect.isawaitable(value):
                    value = await value
                if value is not None:
                    task.returned(value)
        except asyncio.CancelledError as error:
            if self._stopping or self._crash is not None:
                return
            self._refuse(task, tup, error)
        except BaseException as error:
            if limit.expired():
                secs = self.execute_timeout_secs
                why = f"in execute for more than {secs:g} s, its execute_timeout_secs"
                executor.fail_plain(task, tup, executor.failure(task, HUNG, why))
            else:
                self._refuse(task, tup, error)
        finally:
            del self.limits[me]
        self._count(lot, tup, executor.now_ns() - begin_ns)

    def _refuse(self, task: BoltTask, tup: Tuple, error: BaseException) -> None:
        try:
            self.executor.refuse_plain(task, tup, error)
        except TaskCrashed as crash:
            self._crash = crash

    def _count(self, lot: _Lot, tup: Tuple, spent_ns: int) -> None:
        """Count a tuple that has ended."""
        self._calls += 1
        task, stats = lot.task, lot.task.stats
        task.processed += 1
        stats.execute_ns += spent_ns
        if lot.batch.stream == TICK_STREAM:
            task.ticks_done += 1
        else:
            stats.executed += 1
            if not tup._run.root:
                stats.untracked_executed += 1
        lot.left -= 1
        if not lot.left:
            task.processed_bytes += lot.batch.bytes
            self._ended.append(partial(self._finish, lot.done))
        if self._loop is not None:
            self._loop.call_soon(self._hand_over)

    def _finish(self, done: Callable[[], None] | None) -> None:
        """Called by the worker's loop when it has taken the output of a batch in."""
        self._finished += 1
        if done is not None:
            done()

    async def _look(self) -> None:
        """Hand over what coroutines emit before they end, and show that the loop turns."""
        while True:
            await asyncio.sleep(_LOOK_SECS if self._in_flight else _IDLE_LOOK_SECS)
            self._calls += 1
            self._look_for_hung()
            self._hand_over()

    def _look_for_hung(self) -> None:
        """End the worker, after failing its trees, if a tuple that was cancelled is still in `execute` after that time
        once more: it keeps its place until then, and would for ever."""
        secs, now = self.execute_timeout_secs, asyncio.get_running_loop().time()
        if secs is None or now < self._look_again_at:
            return
        self._look_again_at = now + secs / 4
        for begun, limit in self.limits.items():
            ends = limit.when()
            if ends is not None and now > ends + secs:
                task, tup = self._in_flight[begun]
                stack = io.StringIO()
                begun.print_stack(file=stack)
                hung = TaskHung(task.component, task.task, round(now - ends + secs, 1), secs, stack.getvalue())
                self.executor.fail_plain(task, tup, self.executor.failure(task, HUNG, hung.error_text))
                self._crash = hung
                return

    def _hand_over(self) -> None:
        outbox = self.executor.outbox
        if not (outbox or self._ended or self._crash is not None):
            return
        ended, self._ended = self._ended, []
        handover = Handover(outbox, ended, self._crash)
        if handover.bytes:
            self._emitted_bytes += handover.bytes
            handover.done.append(partial(self._took, handover.bytes))
        self._post(handover)

    async def _end(self) -> None:
        """Cancel what is in flight; at an orderly end, tear down."""
        begun = list(self._in_flight)
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        if self._crash is None:
            try:
                async with asyncio.timeout(_TEARDOWN_SECS):
                    await self._each("teardown", "teardown")
            except TaskCrashed as crash:
                self.end_error = crash
            except TimeoutError as error:
                first = self.executor.tasks[0]
                self.end_error = TaskCrashed(first.component, first.task, "teardown", error)
