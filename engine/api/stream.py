"""Streams: the named outputs of a component and the fields of their tuples; and values with the stream that they go to,
for components that yield what they emit.

Guarantees: a `Stream` that exists has valid names, each once; every mistake in `outputs` is one ValueError.

Pure. Thread: any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from squall.engine.foreign.text import name_mistake, repr_of

DEFAULT_STREAM = "default"
SYSTEM_PREFIX = "__"
SYSTEM_COMPONENT = "__system"
ACKER_COMPONENT = "__acker"
TICK_STREAM = "__tick"
TICK_FIELDS = ("rate_secs",)


class Stream:
    """One output stream, for `outputs`: `Stream("word", "count")`. With `direct=True` the sender chooses the receiving
    task, by `emit_direct`.

    Raises ValueError for a repeated or an invalid field name.
    """

    __slots__ = ("direct", "fields", "index")

    def __init__(self, *fields: str, direct: bool = False) -> None:
        for name in fields:
            if mistake := name_mistake(name):
                raise ValueError(f"a field name {mistake}")
        if len(set(fields)) != len(fields):
            raise ValueError(f"field names must differ, got {', '.join(fields)}")
        self.fields = fields
        """Names of the values, in their order."""
        self.direct = direct
        """True if each emit names the task that it goes to."""
        self.index = {name: position for position, name in enumerate(fields)}
        """Field -> its position."""

    def __repr__(self) -> str:
        return f"Stream({', '.join(map(repr, self.fields))}{', direct=True' if self.direct else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.fields, self.direct) == (other.fields, other.direct)

    def __hash__(self) -> int:
        return hash((self.fields, self.direct))

    def __reduce__(self) -> tuple[object, tuple[tuple[str, ...], bool]]:
        return _restore, (self.fields, self.direct)


def declared(outputs: Mapping[str, Stream], values: Sequence[Any], stream: str = DEFAULT_STREAM) -> tuple[Any, ...]:
    """Return emitted values without those of fields that users did not declare, such as identities before state."""
    shape = outputs.get(getattr(values, "stream", stream))  # of a spout's message, `Routed`
    names = dict(enumerate(() if shape is None else shape.fields))
    return tuple(value for at, value in enumerate(values) if not names.get(at, "").startswith(SYSTEM_PREFIX))


def _restore(fields: tuple[str, ...], direct: bool) -> Stream:
    return Stream(*fields, direct=direct)


Outputs = Sequence[str] | Mapping[str, Sequence[str] | Stream]
"""The forms of a component's `outputs`: field names, or stream name -> field names or Stream."""


def parse_outputs(outputs: Outputs) -> dict[str, Stream]:
    """Normalise a component's `outputs`. Raises ValueError naming the mistake."""
    if not isinstance(outputs, Mapping):
        return {DEFAULT_STREAM: _stream_of("outputs are", outputs)} if outputs else {}
    for name in outputs:
        if mistake := name_mistake(name):
            raise ValueError(f"a stream name {mistake}")
    return {name: _stream_of(f"stream {name!r} has", fields) for name, fields in outputs.items()}


def _stream_of(what: str, fields: Any) -> Stream:
    if isinstance(fields, Stream):
        return fields
    if isinstance(fields, str) or not isinstance(fields, Iterable):
        raise ValueError(f"{what} {repr_of(fields)}; allowed: field names, such as ('word', 'count'), or a Stream")
    return Stream(*fields)


@dataclass(slots=True)
class Emit:
    """What a function, or `ReplayingSpout.read`, yields to emit on another stream than the default one:
    `Emit(values, stream)`, or with `task` to that task of a direct stream."""

    values: Any
    """A tuple or list with a value for each field of the stream."""
    stream: str = DEFAULT_STREAM
    """Name of the stream on which they are emitted."""
    task: int | None = None
    """Id of the task that receives them; None lets the groupings choose."""
