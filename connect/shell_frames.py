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
from dataclasses import dataclass
from typing import Any

from squall.engine.api.context import TopologyContext
from squall.engine.api.stream import DEFAULT_STREAM, Outputs, parse_outputs
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
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Message | str]:
        """Take more bytes; gives the messages, as dicts, and the stray texts that are whole now."""
        *frames, self._rest = (self._rest + data).split(_END)
        for frame in frames:
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
    yield frame.decode(errors="replace")


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


@dataclass(frozen=True)
class ShellEmit:
    """An `emit` of a program."""

    values: list[Any] | None
    """None: it names none, as Storm's own spouts do that emit again what they do not know any more."""
    stream: str
    task: int
    """The task of a direct emit; 0 if it is none."""
    anchors: list[str]
    message_id: Any
    """As the program gave it; None if it gave none."""
    wants_tasks: bool
    """True if the program waits for the ids of the tasks."""


def emit_of(who: str, message: Message) -> ShellEmit:
    """Read an `emit` of the component `who`."""
    values, stream, task = message.get("tuple"), message.get("stream"), message.get("task")
    anchors = message.get("anchors") or []
    if isinstance(anchors, str):
        anchors = [anchors]
    for name, value, kinds in (
        ("tuple", values, (list, type(None))),
        ("stream", stream, (str, type(None))),
        ("task", task, (int, type(None))),
        ("anchors", anchors, (list,)),
    ):
        if not isinstance(value, kinds):
            raise ComponentError(f"{who} sent an emit with {name} {repr_of(value)}: {repr_of(message)}")
    wants = message.get("need_task_ids") is not False and not task
    names = [str(one) for one in anchors]
    return ShellEmit(values, stream or DEFAULT_STREAM, task or 0, names, message.get("id"), wants)
