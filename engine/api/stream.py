"""Streams: the named outputs of a component and the fields of their tuples; values with the stream that they go to, for
components that yield what they emit; and the checks of what is emitted.

Guarantees: a `Stream` that exists has valid names, each once; every mistake in `outputs` is one ValueError.

Pure. Thread: any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from squall.engine.errors import ComponentError
from squall.engine.foreign.text import name_mistake, plural, repr_of

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

    def by(self, collector: Any, **named: Any) -> None:
        """Emit them through a collector; `named`: the message id, if there is one."""
        if self.task is None:
            collector.emit(self.values, stream=self.stream, **named)
        else:
            collector.emit_direct(self.task, self.values, stream=self.stream, **named)


# ---- the checks: the engine's, and those of what stands between it and a component ----


def undeclared(who: str, stream: Any, declared: Iterable[str]) -> ComponentError:
    """The error of an emit on a stream that the component does not declare."""
    return ComponentError(
        f"{who} emitted to undeclared stream {repr_of(stream)}; declared: {', '.join(map(repr, declared)) or 'none'}"
    )


def check_kind(who: str, shape: Stream, is_direct: bool) -> None:
    """ComponentError unless a direct emit is on a direct stream, and another one on another. `who`: with the stream."""
    if shape.direct and not is_direct:
        raise ComponentError(f"{who} is a direct stream; use emit_direct(task, values)")
    if is_direct and not shape.direct:
        raise ComponentError(f"{who} is not a direct stream; use emit, or declare it with direct=True")


def checked_row(who: str, shape: Stream, values: Any) -> tuple[Any, ...]:
    """The values of an emit as a tuple of the right length. Raises ComponentError."""
    if not isinstance(values, tuple | list):
        raise ComponentError(
            f"{who} must emit a tuple or list of values for ({', '.join(shape.fields)}), not {repr_of(values)}"
        )
    if len(values) != len(shape.fields):
        raise ComponentError(
            f"{who} emitted {plural(len(values), 'value')} {repr_of(values)}, but its fields are "
            f"({', '.join(shape.fields)})"
        )
    return tuple(values)


def check_width(who: str, shape: Stream, columns: Any) -> None:
    """ComponentError unless there is a column for each field."""
    if not isinstance(columns, tuple | list) or len(columns) != len(shape.fields) or not columns:
        got = plural(len(columns), "column") if isinstance(columns, tuple | list) else repr_of(columns)
        raise ComponentError(
            f"{who} must emit a tuple or list of columns for ({', '.join(shape.fields)}), not {got}"
        )


class Declared:
    """The streams on which a component may emit, as its author declared them."""

    def __init__(self, who: str, streams: Mapping[str, Stream]) -> None:
        self._who, self._streams = who, streams

    def row(self, values: Any, stream: str, task: int | None) -> tuple[Any, ...]:
        """The values of an emit as a tuple of the right length. Raises ComponentError."""
        shape = self._streams.get(stream)
        if shape is not None and values.__class__ is tuple and len(values) == len(shape.fields) and (
            shape.direct == (task is not None)
        ):
            return values
        return checked_row(*self._checked(stream, task), values)

    def check_columns(self, columns: Sequence[Any], stream: str, task: int | None) -> None:
        """ComponentError unless there is a column for each field."""
        check_width(*self._checked(stream, task), columns)

    def _checked(self, stream: str, task: int | None) -> tuple[str, Stream]:
        shape = self._streams.get(stream)
        if shape is None:
            raise undeclared(self._who, stream, self._streams)
        who = f"{self._who} stream {stream!r}"
        check_kind(who, shape, task is not None)
        return who, shape
