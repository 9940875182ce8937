"""Makes Arrow columns of tuples' values: which type a field has, and which values do not fit it.

Guarantees that nothing is changed on the way without a word (1.5 is not stored as 1, nor a dict without one of its
keys): a value that Arrow does not give back as it was is a misfit, whatever object it is; and one misfit does not harm
the rows beside it. Imports pyarrow when called. Thread: any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from squall.engine.errors import UsageError
from squall.engine.foreign.text import message_of, repr_of, text_of_error, type_name

#: Digits of a decimal column whose type is inferred: all that Arrow and Spark can.
DECIMAL_DIGITS = 38
#: Classes whose values Arrow stores as they are, or refuses.
_PLAIN = {"int64": int, "double": float, "string": str, "bool": bool, "binary": bytes}


class Misfit(NamedTuple):
    """A value that cannot be stored in its column."""

    row: int
    why: str


def schema_of(types: object) -> Any:
    """An Arrow schema from one of pyarrow's, or from a dict of field: type or its name. UsageError otherwise."""
    import pyarrow
    from pyarrow import parquet

    try:
        if isinstance(types, pyarrow.Schema):
            schema = types.remove_metadata()
        else:
            schema = pyarrow.schema([*types.items()] if isinstance(types, Mapping) else types)
        parquet.write_metadata(schema, pyarrow.BufferOutputStream())
    except (pyarrow.ArrowException, AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"ParquetSink has schema {repr_of(types)}: {text_of_error(error)}; give a pyarrow.Schema, or a dict of "
            "field: type, such as 'string', 'int64', 'float64', 'bool', 'binary', 'timestamp[us]', 'date32'"
        ) from error
    return schema


def infer(values: Sequence[Any]) -> Any:
    """The type that fits these values, or the first of them that has one; None if that cannot be told."""
    import pyarrow

    for some in (values, *([value] for value in values if value is not None)):
        made: list[Any] = []
        _convert(some, 0, None, made, {})
        if len(made) == 1 and made[0].type != pyarrow.null():
            return _widened(made[0].type)
    return None


def _widened(type_: Any) -> Any:
    """Room for values to come; None if a part of the type is not known."""
    import pyarrow
    from pyarrow import types

    if types.is_null(type_):
        return None
    if types.is_decimal(type_):
        return pyarrow.decimal128(DECIMAL_DIGITS, type_.scale)
    if types.is_list(type_):
        inner = _widened(type_.value_type)
        return None if inner is None else pyarrow.list_(inner)
    if types.is_struct(type_):
        parts = [(field.name, _widened(field.type)) for field in type_]
        return pyarrow.struct(parts) if parts and all(part is not None for _, part in parts) else None
    return type_


def make_column(name: str, values: Sequence[Any], type_: Any) -> tuple[Any, list[Misfit]]:
    """A chunked array of the values, null at each misfit, and the misfits."""
    import pyarrow
    from pyarrow import compute

    pieces: list[Any] = []
    refused: dict[int, str] = {}
    _convert(values, 0, type_, pieces, refused)
    column = pyarrow.chunked_array(pieces, type_)
    if not set(map(type, values)) <= {_PLAIN.get(str(type_)), type(None)}:
        for row, (value, stored) in enumerate(zip(values, column.to_pylist(), strict=True)):
            if row not in refused and not _is_same(value, stored):
                refused[row] = ""
        if refused:
            kept = [row not in refused for row in range(len(values))]
            column = compute.if_else(pyarrow.array(kept), column, pyarrow.scalar(None, type_))
    return column, [Misfit(row, _why(name, type_, values[row], text)) for row, text in refused.items()]


def _why(name: str, type_: Any, value: Any, text: str) -> str:
    more = f" ({text})" if text else ""
    return f"field {name!r} is {repr_of(value)} of type {type_name(value)}, which a column of {type_} cannot hold{more}"


def _convert(values: Sequence[Any], first: int, type_: Any, pieces: list[Any], refused: dict[int, str]) -> None:
    """Append the arrays of some rows, from `first` on; halve them until each value that Arrow refuses is alone."""
    import pyarrow

    try:
        made = pyarrow.array(values, type_)
    except MemoryError:
        raise
    except Exception as error:  # of Arrow, or of a user's object
        if len(values) == 1:
            refused[first] = message_of(error).partition("\n")[0]
            pieces.append(pyarrow.nulls(1, type_))
            return
        half = len(values) // 2
        _convert(values[:half], first, type_, pieces, refused)
        _convert(values[half:], first + half, type_, pieces, refused)
        return
    pieces.extend(made.chunks if isinstance(made, pyarrow.ChunkedArray) else [made])


def _is_same(value: Any, stored: Any) -> bool:
    """Whether a value is what Arrow gives back. A struct may lack keys, which are null then."""
    try:
        if isinstance(value, Mapping):
            if isinstance(stored, Mapping):
                return value.keys() <= stored.keys() and all(
                    _is_same(value.get(name), part) for name, part in stored.items()
                )
            value = [*value.items()]
        elif isinstance(stored, list) and isinstance(value, str | bytes):
            return False
        if isinstance(stored, list | tuple):
            return len(value) == len(stored) and all(map(_is_same, value, stored))
        if isinstance(value, bool) and not isinstance(stored, bool):
            return False
        return bool(value == stored or (value != value and stored != stored))
    except Exception:  # of a user's object
        return False
