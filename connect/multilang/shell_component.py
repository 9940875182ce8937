"""Components that are programs in other languages, by Storm's multilang protocol: what spouts and bolts have in common,
and ShellSpout.

Guarantees
    * Any program that Storm runs is run as it is. What it emits, logs and counts is done for it, and it is told the ids
      of tasks whenever it waits for them.
    * The program of a spout is asked one thing at a time. When it ends or hangs, the spout raises, and its worker is
      replaced, as in Storm: only a program that begins anew knows what it has to emit again.

Thread: that of the executor.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from squall.connect.multilang.shell_frames import Message, ShellEmit, emit_of, encode, greeting
from squall.connect.multilang.shell_process import ShellError, ShellProcess
from squall.engine.api.collectors import BoltCollector, SpoutCollector
from squall.engine.api.component import Component, Spout
from squall.engine.api.context import TopologyContext
from squall.engine.api.stream import DEFAULT_STREAM, Outputs
from squall.engine.errors import ComponentError, UsageError
from squall.engine.foreign.text import repr_of

_LEVELS = (5, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
"""Of Storm's levels trace, debug, info, warn and error."""


class ShellComponent(Component):
    """A component whose program is in another language."""

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
                try:
                    self._context.histogram(str(message.get("name"))).update(message["params"])
                except (KeyError, TypeError, OverflowError, ComponentError) as error:
                    collector.report_error(ComponentError(f"{self._who} sent {repr_of(message)}: {error}"))
            case "emit":
                emit = emit_of(self._who, message)
                tasks = emits(emit)
                if emit.wants_tasks:
                    self._send(encode(tasks))
            case _:
                mistake = f"{self._who} sent {repr_of(message)}, which is no command of a {self._kind}; it is left out"
                collector.report_error(ComponentError(mistake))

    def _send(self, message: bytes) -> None:
        self._child.send(message)

    _kind: str
    _child: ShellProcess


class ShellSpout(ShellComponent, Spout):
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
        stream, message_id = emit.stream or DEFAULT_STREAM, emit.message_id
        if emit.task:
            return self._collector.emit_direct(emit.task, emit.values, message_id=message_id, stream=stream)
        return self._collector.emit(emit.values, message_id=message_id, stream=stream)

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
