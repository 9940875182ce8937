"""AsyncBolt and AsyncSpout: components whose work is a coroutine, for calls over a network that mostly wait.

Guarantees
    * An `AsyncBolt` has up to `max_in_flight` tuples in `execute` at a time, all on one event loop in a thread of their
      executor; one coroutine runs at a time, so its attributes need no locks. Acks, failures and emits may come in any
      order. Otherwise it is a `Bolt`: it acks or fails each tuple itself.
    * An `AsyncSpout` is asked for one tuple at a time, on an event loop in a thread of its executor.
    * `setup` runs on that loop before the first tuple, `teardown` at an orderly end, so they may open and close what
      belongs to a loop, such as an HTTP session.
    * With `--local` and in `squall.testing` tuples are executed one after the other, each to its end.

Wrong use is a UsageError where the class is defined.

Relies on: `engine.core.async_bolt` for many in flight. asyncio is imported on first use: it takes a third of the time
that `import squall` may.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from squall.engine.api.component import Bolt, Spout
from squall.engine.errors import UsageError

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from squall.engine.api.tuple import Tuple

_TEARDOWN_SECS = 3.0
"""Longest wait for a spout that was cancelled: less than a worker is given to end."""


class _Here(threading.local):
    runs_loop = False
    """Whether this thread is inside an event loop of Squall's."""


_here = _Here()


@contextlib.contextmanager
def own_loop() -> Iterator[None]:
    """Mark this thread as one that runs an event loop of Squall's: calls of the method give coroutines."""
    before, _here.runs_loop = _here.runs_loop, True
    try:
        yield
    finally:
        _here.runs_loop = before


class _Asynchronous:
    """The common part: makes the method for tuples one that can be called with and without an event loop."""

    _base_name: str
    _method: str
    _in_setup: Coroutine[Any, Any, None] | None = None
    """`setup` while it runs, for the worker, which tells the operator if it does not end."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        for method in (cls._method, "setup", "teardown"):
            found = getattr(cls, method)
            if not (hasattr(found, "is_driven") or inspect.iscoroutinefunction(found)):
                generates = inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found)
                kind = "a generator" if generates else "a def"
                raise UsageError(
                    f"{cls.__name__} defines {method} as {kind}; allowed in an {cls._base_name}: async def {method}, "
                    "without yield"
                )
        found = getattr(cls, cls._method)
        if not hasattr(found, "is_driven"):
            setattr(cls, cls._method, _driven(found))

    async def setup(self) -> None:
        """Called once, on the event loop, before the first tuple."""

    async def teardown(self) -> None:
        """Called on the event loop at an orderly end, not when the worker is killed."""

    async def _set_up(self) -> None:
        self._in_setup = begun = self.setup()
        try:
            await begun
        finally:
            self._in_setup = None

    def _drive(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end on a loop of this object's own."""
        return self._outside_of_loops(lambda: self._run(coroutine))

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        with own_loop():
            if getattr(self, "_loop_runner", None) is None:
                self._loop_runner = asyncio.Runner()
                try:
                    self._loop_runner.run(self._set_up())
                except BaseException:
                    coroutine.close()  # else Python warns that nothing has awaited it
                    raise
            return self._loop_runner.run(coroutine)

    def _end_drive(self) -> None:
        """Tear down, and close the loop of this object's own, if it has one."""
        runner = self.__dict__.pop("_loop_runner", None)
        if runner is not None:
            self._outside_of_loops(lambda: self._end_loop(runner))
        if (thread := self.__dict__.pop("_own_thread", None)) is not None:
            thread.shutdown()

    def _end_loop(self, runner: asyncio.Runner) -> None:
        with runner, own_loop():
            runner.run(self.teardown())

    def _outside_of_loops(self, call: Callable[[], Any]) -> Any:
        """Call it where no event loop runs, always in the same thread: a notebook has a loop in its main thread."""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass  # Not called here: that error would stand above the user's own in tracebacks.
        else:
            if getattr(self, "_own_thread", None) is None:
                self._own_thread = ThreadPoolExecutor(1)
            return self._own_thread.submit(call).result()
        return call()


def _called(component: Any, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """A function of this module, so that methods that travel by value take its name along and not its variables."""
    return coroutine if _here.runs_loop else component._drive(coroutine)


def _driven(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: Any, *arguments: Any) -> Any:
        return _called(self, function(self, *arguments))

    call.is_driven = True  # type: ignore[attr-defined]
    return call


class AsyncBolt(_Asynchronous, Bolt):
    """A bolt with `async def execute(self, tup)`, of which up to `max_in_flight` run at a time on one event loop. It
    acks and anchors itself, like a `Bolt`. Open sessions and pools in `setup`, close them in `teardown`."""

    _base_name, _method = "AsyncBolt", "execute"
    blocking = True
    max_in_flight: int = 100
    """Most tuples of an executor in `execute` at a time."""

    @_driven
    async def execute(self, tup: Tuple) -> None:
        """Process one tuple. It must be acked or failed, now or later. An exception is treated as in `Bolt`."""
        raise TypeError(f"{type(self).__name__} must define execute")

    def cleanup(self) -> None:
        """End what `--local` and tests began. Override `teardown` instead."""
        self._end_drive()


class AsyncSpout(_Asynchronous, Spout):
    """A spout with `async def next_tuple(self)`. asyncio tasks that it starts run only while it is in `next_tuple`.
    Open connections in `setup`, close them in `teardown`."""

    _base_name, _method = "AsyncSpout", "next_tuple"
    blocking = True
    _asked: asyncio.Task[Any] | None = None
    _closing: Future[None] | None = None
    """What `close` waits for, if it has to: the end of the thread's teardown."""

    @_driven
    async def next_tuple(self) -> None:
        """Emit zero, one or several tuples. It may wait for any time, but `ack` and `fail` are called only between
        calls."""
        raise TypeError(f"{type(self).__name__} must define next_tuple")

    def _drive(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        value = None
        try:
            value = super()._drive(self._noted(coroutine))
        except asyncio.CancelledError:
            if self._closing is None:
                raise
        if self._closing is not None:
            try:
                self._end_drive()
                self._closing.set_result(None)
            except BaseException as error:
                self._closing.set_exception(error)
        return value

    async def _noted(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        self._asked = asyncio.current_task()
        try:
            return await coroutine
        finally:
            self._asked = None

    def close(self) -> None:
        """Cancel a `next_tuple` that still waits, and wait for its thread to tear down; override `teardown`."""
        from concurrent.futures import Future

        self._closing = Future()
        asked = self._asked
        if asked is None:
            self._end_drive()
        else:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                asked.get_loop().call_soon_threadsafe(asked.cancel)
            self._closing.result(_TEARDOWN_SECS)
