"""ShellSpout and ShellBolt: components that are programs in another language, by Storm's multilang protocol.

Guarantees
    * Any program that Storm runs is run as it is: what it emits, acks, fails, logs and counts is done for it, and it is
      told the ids of tasks whenever it waits for them.
    * A bolt's program may ack and fail in any order, also later. When it ends, hangs or breaks the protocol, the tuples
      that it has fail with the reason, and another one is started, after a growing pause.
    * A spout's program is asked one thing at a time. When it ends or hangs, the spout raises, and its worker is
      replaced, as in Storm: only a program that begins anew knows what it has to emit again.
    * A program that cannot be started ends the run.

Relies on: `engine.core.async_bolt`, which has each bolt's callbacks and coroutines on one thread.

Thread: that of the executor.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from squall.connect.shell_frames import Message, emit_of, encode, greeting, heartbeat, sent_tuple
from squall.connect.shell_process import EXIT_SECS, ShellError, ShellProcess
from squall.engine.api.async_component import AsyncBolt
from squall.engine.api.component import Component, Spout
from squall.engine.api.stream import Outputs
from squall.engine.errors import ComponentError, FailedTuple, UsageError
from squall.engine.foreign.text import repr_of

if TYPE_CHECKING:
    from squall.connect.shell_frames import ShellEmit
    from squall.engine.api.collectors import BoltCollector, SpoutCollector
    from squall.engine.api.context import TopologyContext
    from squall.engine.api.tuple import Tuple

_LEVELS = (5, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
"""Of Storm's levels trace, debug, info, warn and error."""
_BEAT_SECS = 1.0
_FIRST_PAUSE_SECS, _LONGEST_PAUSE_SECS = 0.05, 30.0
"""Before a bolt's program is started again; twice as long each time, until one acks a tuple."""


class _Shell(Component):
    """What both have in common."""

    def __init__(
        self, command: Sequence[str], outputs: Outputs = (), *, directory: str | os.PathLike[str] = ".",
        subprocess_timeout_secs: float = 30.0,
    ) -> None:
        """`command`: the program and its arguments, such as `["python3", "split.py"]`, to be run in `directory`. It is
        ended if it says nothing for `subprocess_timeout_secs` while it should."""
        if isinstance(command, str) or not command or not all(isinstance(word, str) for word in command):
            raise UsageError(
                f"{type(self).__name__} has command {repr_of(command)}; allowed: a list of texts, such as "
                '["python3", "split.py"]'
            )
        self.command, self.outputs = list(command), outputs
        self._directory = os.path.abspath(directory)
        self._timeout_secs = subprocess_timeout_secs

    def _begin(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._context = context
        self._who = f"{context.component_id}[{context.task_id}]"
        self._logger = logging.getLogger(context.component_id)
        if context.state_root is None:
            self._own_dir = tempfile.TemporaryDirectory(prefix="squall-pids-")
        self._pid_dir = context.state_root or self._own_dir.name
        self._greeting = greeting(conf, context, self.outputs, self._pid_dir)

    def _launch(self) -> ShellProcess:
        os.makedirs(self._pid_dir, mode=0o700, exist_ok=True)
        return ShellProcess(self._who, self.command, self._directory, self._pid_dir, self._greeting)

    def _obey(
        self, message: Message, collector: BoltCollector | SpoutCollector, emits: Callable[[ShellEmit], list[int]]
    ) -> None:
        """Do what is the same for spouts and bolts, with `emits` for an emit."""
        match message.get("command"):
            case "log":
                level = message.get("level")
                known = level if isinstance(level, int) and 0 <= level < len(_LEVELS) else 2
                self._logger.log(_LEVELS[known], "%s", message.get("msg"))
            case "error":
                collector.report_error(ShellError(str(message.get("msg"))))
            case "metrics":
                self._measure(message, collector)
            case "emit":
                emit = emit_of(self._who, message)
                tasks = emits(emit)
                if emit.wants_tasks:
                    self._send(encode(tasks))
            case _:
                mistake = f"{self._who} sent {repr_of(message)}, which is no command of a {self._kind}; it is left out"
                collector.report_error(ComponentError(mistake))

    def _measure(self, message: Message, collector: BoltCollector | SpoutCollector) -> None:
        value = message.get("params")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            mistake = f"{self._who} sent metric {repr_of(message.get('name'))} with {repr_of(value)}; allowed: a number"
            collector.report_error(ComponentError(mistake))
        else:
            self._context.histogram(str(message.get("name"))).update(value)

    def _send(self, message: bytes) -> None:
        self._child.send(message)

    _kind: str
    _child: ShellProcess


class ShellSpout(_Shell, Spout):
    """A spout whose program is in another language: `ShellSpout(["node", "lines.js"], ("line",))`. A failed message is
    emitted again if its program does that, as in Storm."""

    blocking = True
    _kind = "spout"

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        """Start the program."""
        self._begin(conf, context)
        self._collector = collector
        self._child = self._launch()
        self._child.await_greeting(self._timeout_secs)

    def _ask(self, command: str, message_id: Any = "") -> None:
        """Have the program do something, and do what it says until it is done."""
        self._send(encode({"command": command, "id": message_id}))
        doing = f"answer {command!r} with 'sync'"
        while True:
            message = self._child.next_message(self._timeout_secs, doing)
            if message.get("command") == "sync":
                return
            self._obey(message, self._collector, self._emit)

    def _emit(self, emit: ShellEmit) -> list[int]:
        if emit.values is None:
            mistake = f"{self._who} emitted message {repr_of(emit.message_id)} without a tuple; it is left out"
            self._collector.report_error(ComponentError(mistake))
            return []
        if emit.task:
            return self._collector.emit_direct(emit.task, emit.values, message_id=emit.message_id, stream=emit.stream)
        return self._collector.emit(emit.values, message_id=emit.message_id, stream=emit.stream)

    def next_tuple(self) -> None:
        self._ask("next")

    def ack(self, message_id: Any) -> None:
        self._ask("ack", message_id)

    def fail(self, message_id: Any) -> None:
        self._ask("fail", message_id)

    def activate(self) -> None:
        self._ask("activate")

    def deactivate(self) -> None:
        self._ask("deactivate")

    def close(self) -> None:
        self._child.end()


class ShellBolt(_Shell, AsyncBolt):
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
        held = [self._held(name, "anchored an emit to") for name in emit.anchors if not name.startswith("-")]
        anchors = [tup for tup in held if tup is not None]
        if emit.task:
            return self._collector.emit_direct(emit.task, emit.values, anchors=anchors, stream=emit.stream)
        return self._collector.emit(emit.values, anchors=anchors, stream=emit.stream)
