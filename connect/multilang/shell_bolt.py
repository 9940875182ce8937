"""ShellBolt: a bolt that is a program in another language, by Storm's multilang protocol.

Guarantees
    * Its program may ack and fail in any order, also later; it may emit at any time.
    * When it ends, hangs or breaks the protocol, the tuples that it has fail with the reason, and another one is
      started, after a growing pause. One that cannot be started at first ends the worker, and so the run.

Relies on: `engine.core.async_bolt`, which has coroutines and callbacks of a bolt on one thread.

Thread: that of the executor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from squall.connect.multilang.shell_component import ShellComponent
from squall.connect.multilang.shell_frames import ShellEmit, heartbeat, sent_tuple
from squall.connect.multilang.shell_process import EXIT_SECS
from squall.engine.api.async_component import AsyncBolt
from squall.engine.api.collectors import BoltCollector
from squall.engine.api.context import TopologyContext
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.tuple import Tuple
from squall.engine.errors import ComponentError, FailedTuple
from squall.engine.foreign.text import repr_of

_BEAT_SECS = 1.0
_FIRST_PAUSE_SECS, _LONGEST_PAUSE_SECS = 0.05, 30.0
"""Before a program is started again; twice as long each time, until one acks a tuple."""


class ShellBolt(ShellComponent, AsyncBolt):
    """A bolt whose program is in another language: `ShellBolt(["python3", "split.py"], ("word",))`. It acks and anchors
    itself. Up to `max_in_flight` tuples wait for it."""

    _kind = "bolt"

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        """Note where the task runs; `setup` starts the program."""
        self._begin(conf, context)
        self._collector = collector
        together = next(one for group in context.plan.executors for one in group if context.task_id in one.tasks)
        self._most = max(1, self.max_in_flight // len(together.tasks))
        """Tuples that may wait for this task's program."""

    async def setup(self) -> None:
        """Start the program, and wait until it has told its pid. ShellError if it ends before."""
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, Tuple | None] = {}
        """What the program has, by its ids; None: its time is over, so it has failed."""
        self._waiting: dict[int, asyncio.Future[None]] = {}
        """Of those, the ones that nothing was heard of yet, in the order of sending."""
        self._sent, self._losses = 0, 0
        self._up = asyncio.Event()
        self._first: asyncio.Future[None] = self._loop.create_future()
        self._later: asyncio.TimerHandle | None = None
        self._start()
        await self._first

    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        """Send a tuple, and wait until the program has acked or failed it, or shows that it keeps it."""
        while not self._up.is_set():  # it may have ended again before this goes on
            await self._up.wait()
        self._sent = number = self._sent + 1
        try:
            name, message = sent_tuple(number, tup)
        except (TypeError, ValueError, RecursionError) as error:
            raise FailedTuple(f"{self._who} cannot send {repr_of(tup)}: a value is not JSON: {error}") from None
        self._send(message)
        if tup.is_tick:
            self._collector.ack(tup)
            return
        self._open[name] = tup
        heard = self._waiting[number] = self._loop.create_future()
        if len(self._waiting) >= self._most:
            self._probe()
        try:
            await heard
        except asyncio.CancelledError:
            if name in self._open:
                self._open[name] = None
            raise
        finally:
            self._waiting.pop(number, None)

    async def teardown(self) -> None:
        """End the program."""
        if self._later is not None:
            self._later.cancel()
        self._let_go(EXIT_SECS)

    # ---- the program's life ----

    def _start(self) -> None:
        self._silent_secs = 0.0
        self._probed: int | None = None
        try:
            child = self._child = self._launch()
        except (OSError, ComponentError) as error:
            self._lose(error)
            return
        self._loop.add_reader(child.stdout, self._hear)
        self._loop.add_reader(child.stderr, self._hear_errors)
        self._send(b"")
        self._later = self._loop.call_later(_BEAT_SECS, self._beat)

    def _send(self, message: bytes) -> None:
        self._child.send(message)
        if not self._child.flush():
            self._loop.add_writer(self._child.stdin, self._send_more)

    def _send_more(self) -> None:
        if self._child.flush():
            self._loop.remove_writer(self._child.stdin)

    def _beat(self) -> None:
        """Once a second: has the program said anything since the last heartbeat?"""
        self._later = self._loop.call_later(_BEAT_SECS, self._beat)
        self._silent_secs += _BEAT_SECS
        if self._silent_secs > self._timeout_secs:
            doing = "answer a heartbeat" if self._child.greeted else "tell its pid"
            self._lose(self._child.silent(self._timeout_secs, doing))
        else:
            self._probe()

    def _probe(self) -> None:
        """Send a heartbeat, unless one is not answered yet. A program that answers it has read what came before."""
        if self._probed is None and self._child.greeted:
            self._probed = self._sent
            self._sent += 1
            self._send(heartbeat(self._sent))

    def _lose(self, error: Exception) -> None:
        """End the program, fail what it has, and start another one in a while."""
        self._let_go(0)
        self._up.clear()
        if self._later is not None:
            self._later.cancel()
        for name, tup in self._open.items():
            heard = self._waiting.get(int(name))
            if heard is not None and not heard.done():
                heard.set_exception(FailedTuple(str(error)))
            elif tup is not None:
                self._collector.fail(tup)
        self._open.clear()
        if not self._first.done():
            self._first.set_exception(error)
            return
        self._collector.report_error(error)
        pause_secs = min(_LONGEST_PAUSE_SECS, _FIRST_PAUSE_SECS * 2.0**self._losses)
        self._losses += 1
        self._later = self._loop.call_later(pause_secs, self._start)

    def _let_go(self, patience_secs: float) -> None:
        if (child := self.__dict__.pop("_child", None)) is not None:
            for fd in (child.stdout, child.stderr):
                self._loop.remove_reader(fd)
            self._loop.remove_writer(child.stdin)
            child.end(patience_secs)

    # ---- what it says ----

    def _hear(self) -> None:
        try:
            messages = self._child.receive()
            if self._child.greeted and not self._up.is_set():
                self._up.set()
                if not self._first.done():
                    self._first.set_result(None)
            for message in messages:
                self._silent_secs = 0.0
                match message.get("command"):
                    case "ack" | "fail" as command:
                        self._answer(command, str(message.get("id")))
                    case "sync":
                        self._release()
                    case _:
                        self._obey(message, self._collector, self._emit)
        except Exception as error:
            self._lose(error)

    def _hear_errors(self) -> None:
        if not self._child.receive_errors():
            self._loop.remove_reader(self._child.stderr)

    def _answer(self, command: str, name: str) -> None:
        if name.startswith("-"):
            return  # a tick
        tup = self._held(name, f"sent {command!r} for")
        del self._open[name]
        if tup is None:
            return
        (self._collector.ack if command == "ack" else self._collector.fail)(tup)
        self._losses = 0
        heard = self._waiting.get(int(name))
        if heard is not None and not heard.done():
            heard.set_result(None)

    def _held(self, name: str, did: str) -> Tuple | None:
        if name not in self._open:
            raise ComponentError(f"{self._who} {did} tuple {name}, which it does not have, or has acked or failed")
        return self._open[name]

    def _release(self) -> None:
        """The program has read all that was sent before the last heartbeat: what it has not acked of that, it keeps."""
        for number, heard in self._waiting.items():
            if self._probed is None or number > self._probed:
                break
            if not heard.done():
                heard.set_result(None)
        self._probed = None

    def _emit(self, emit: ShellEmit) -> list[int]:
        if emit.values is None:
            raise ComponentError(f"{self._who} sent an emit without a tuple")
        names = [emit.anchors] if isinstance(emit.anchors, str) else emit.anchors or ()
        held = [self._held(name, "anchored an emit to") for name in names if not name.startswith("-")]
        anchors, stream = [tup for tup in held if tup is not None], emit.stream or DEFAULT_STREAM
        if emit.task:
            return self._collector.emit_direct(emit.task, emit.values, anchors=anchors, stream=stream)
        return self._collector.emit(emit.values, anchors=anchors, stream=stream)
