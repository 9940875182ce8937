"""The checks of emits that the engine sees later, or with one field more.

Pure. Thread: any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall.engine.api.stream import Stream
from squall.engine.errors import ComponentError
from squall.engine.foreign.text import repr_of
from squall.engine.plural import plural


def shape_of(who: str, streams: Mapping[str, Stream], stream: str, task: int | None) -> Stream:
    """The stream of an emit. ComponentError if it is not declared, or not for this kind of emit."""
    shape = streams.get(stream)
    if shape is None:
        declared = ", ".join(map(repr, streams)) or "none"
        raise ComponentError(f"{who} emitted to undeclared stream {repr_of(stream)}; declared: {declared}")
    if shape.direct != (task is not None):
        what = "is a direct stream; use emit_direct(task, values)" if shape.direct else (
            "is not a direct stream; use emit, or declare it with direct=True")
        raise ComponentError(f"{who} stream {stream!r} {what}")
    return shape


def checked_values(who: str, streams: Mapping[str, Stream], values: Any, stream: str, task: int | None) -> Any:
    """The values of an emit as a tuple of the right length. Raises ComponentError."""
    shape = shape_of(who, streams, stream, task)
    if not isinstance(values, list | tuple) or len(values) != len(shape.fields):
        raise ComponentError(
            f"{who} stream {stream!r} emitted {repr_of(values)}; allowed: a tuple or list of "
            f"{plural(len(shape.fields), 'value')} for ({', '.join(shape.fields)})"
        )
    return tuple(values)


def check_columns(who: str, streams: Mapping[str, Stream], columns: Any, stream: str, task: int | None) -> None:
    """ComponentError unless there is a column for each field."""
    fields = shape_of(who, streams, stream, task).fields
    if not isinstance(columns, tuple | list) or len(columns) != len(fields):
        raise ComponentError(
            f"{who} stream {stream!r} must emit a tuple or list of columns for ({', '.join(fields)}), not "
            f"{repr_of(columns)}"
        )
