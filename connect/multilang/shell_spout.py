"""ShellSpout: a spout that is a program in another language, by Storm's multilang protocol.

Guarantees
    * Its program is asked one thing at a time.
    * When it ends or hangs, the spout raises, and its worker is replaced, as in Storm: only a program that begins anew
      knows what it has to emit again.

Thread: that of the executor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall.connect.multilang.shell_component import ShellComponent
from squall.connect.multilang.shell_frames import ShellEmit, encode
from squall.engine.api.collectors import SpoutCollector
from squall.engine.api.component import Spout
from squall.engine.api.context import TopologyContext
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.errors import ComponentError
from squall.engine.foreign.text import repr_of


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
