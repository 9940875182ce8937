"""Storm's multilang protocol: JSON and a line `end`, between a component and its program in another language.

Guarantees
    * What is no frame, such as a stray `print`, is told as text and costs no frame: reading goes on at the next `end`,
      and text in front of a frame is taken off it.
    * What a program sends is checked here; a mistake is one ComponentError that names the message.

Pure. Thread: any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from squall.engine.api.context import TopologyContext
from squall.engine.api.stream import Outputs, parse_outputs
from squall.engine.api.tuple import Tuple
from squall.engine.errors import ComponentError
from squall.engine.foreign.text import repr_of

HEARTBEAT_STREAM = "__heartbeat"
_END = b"\nend\n"

Message = dict[str, Any]


def encode(message: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """Return a message as it is sent. TypeError, ValueError or RecursionError if it cannot be JSON, unless `default`
    makes it."""
    return json.dumps(message, default=default, allow_nan=False).encode() + _END


class ShellReader:
    """Cuts what a program writes into messages and stray text."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Message | str]:
        """Take more bytes; gives the messages, as dicts, and the stray texts that are whole now. ValueError for a
        message that cannot be read."""
        rest, searched = self._rest, max(0, len(self._rest) - len(_END))
        rest += data
        while (end := rest.find(_END, searched)) >= 0:
            frame, searched = bytes(rest[:end]), 0
            del rest[: end + len(_END)]
            yield from _parts(frame)

    def rest(self) -> str:
        """What came after the last frame."""
        return self._rest.decode(errors="replace")


def _parts(frame: bytes) -> Iterator[Message | str]:
    start = frame.find(b"{")
    while start >= 0:
        try:
            found = json.loads(frame[start:])
        except (ValueError, RecursionError):
            start = frame.find(b"{", start + 1)
            continue
        if stray := frame[:start].strip():
            yield stray.decode(errors="replace")
        yield found
        return
    text = frame.decode(errors="replace")
    if '"command"' in text:
        raise ValueError(text)
    yield text


def greeting(conf: Mapping[str, Any], context: TopologyContext, outputs: Outputs, pid_dir: str) -> bytes:
    """Return the first message to a program. Settings that are not JSON go as texts."""
    streams = parse_outputs(outputs)
    told = {
        "taskid": context.task_id,
        "componentid": context.component_id,
        "task->component": {str(task): name for task, name in context.plan.task_component.items()},
        "streams": list(streams),
        "stream->outputfields": {name: stream.fields for name, stream in streams.items()},
        "source->stream->fields": context.input_fields,
    }
    conf = {**conf, "topology.name": context.topology_name}
    return encode({"conf": conf, "context": told, "pidDir": pid_dir}, default=repr)


def sent_tuple(number: int, tup: Tuple) -> tuple[str, bytes]:
    """Return the id of a tuple for the program, and the message. Ids of ticks begin with a minus."""
    tick = tup.is_tick
    name = f"-{number}" if tick else f"{number}"
    message = {
        "id": name,
        "comp": tup.source_component,
        "stream": tup.source_stream,
        "task": -1 if tick else tup.source_task,
        "tuple": tup.values,
    }
    return name, encode(message)


def heartbeat(number: int) -> bytes:
    """Return the message that a bolt's program answers with `sync`."""
    return encode({"id": f"-{number}", "comp": None, "stream": HEARTBEAT_STREAM, "task": -1, "tuple": []})


class ShellEmit(msgspec.Struct):
    """An `emit` of a program."""

    values: list[Any] | None = msgspec.field(default=None, name="tuple")
    """None: it names none, as Storm's own spouts do that emit again what they do not know any more."""
    stream: str | None = None
    task: int | None = None
    """The task of a direct emit; None or 0 if it is none."""
    anchors: list[str] | str | None = None
    message_id: Any = msgspec.field(default=None, name="id")
    """As the program gave it; None if it gave none."""
    need_task_ids: bool | None = None

    @property
    def wants_tasks(self) -> bool:
        """Return True if the program waits for the ids of the tasks."""
        return self.need_task_ids is not False and not self.task


def emit_of(who: str, message: Message) -> ShellEmit:
    """Read an `emit` of the component `who`."""
    try:
        return msgspec.convert(message, ShellEmit)
    except msgspec.ValidationError as error:
        raise ComponentError(f"{who} sent {repr_of(message)}: {error}") from None
