"""The checks of what a component emits: the engine's, and those of what stands between it and a component.

Pure. Thread: any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from squall.engine.api.stream import Stream
from squall.engine.errors import ComponentError
from squall.engine.foreign.text import repr_of
from squall.engine.plural import plural


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
