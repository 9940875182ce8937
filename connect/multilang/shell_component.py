"""What ShellSpout and ShellBolt have in common: their programs, and the messages that are the same for both.

Guarantees: any program that Storm runs is run as it is. What it emits, logs and counts is done for it, and it is told
the ids of tasks whenever it waits for them.

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
from squall.engine.api.component import Component
from squall.engine.api.context import TopologyContext
from squall.engine.api.stream import Outputs
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
