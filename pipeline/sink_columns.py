"""Makes Arrow columns of tuples' values: which type a field has, and which values do not fit it.

Guarantees that nothing is changed on the way without a word (1.5 is not stored as 1, nor a dict without one of its
keys): a value either arrives as it is, or its row is named as a misfit, whatever object it is; and that one misfit does
not harm the rows beside it. Imports pyarrow when called. Pure. Thread: any.
"""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from squall.engine.errors import UsageError
from squall.engine.foreign.text import message_of, repr_of, text_of_error, type_name

#: Digits of a decimal column whose type is inferred: all that Arrow and Spark can.
DECIMAL_DIGITS = 38


class Misfit(NamedTuple):
    """A value that cannot be stored in its column."""

    row: int
    why: str


def schema_of(types: object) -> Any:
    """An Arrow schema from what a user gave: one of pyarrow's, or a dict of field: type or its name. UsageError
    otherwise."""
    import pyarrow
    from pyarrow import parquet

    schema = types.remove_metadata() if isinstance(types, pyarrow.Schema) else _from_dict(types)
    try:
        parquet.write_metadata(schema, pyarrow.BufferOutputStream())
    except pyarrow.ArrowException as error:
        raise UsageError(f"Parquet cannot hold the schema {repr_of(types)}: {text_of_error(error)}") from error
    return schema


def _from_dict(types: object) -> Any:
    import pyarrow

    if not isinstance(types, Mapping) or not types:
        raise UsageError(f"a schema is {repr_of(types)}; allowed: a pyarrow.Schema, or a dict of field: type")
    fields = []
    for name, type_ in types.items():
        if not isinstance(name, str):
            raise UsageError(f"a schema has a field {repr_of(name)}; allowed: text")
        try:
            kind = type_ if isinstance(type_, pyarrow.DataType) else pyarrow.type_for_alias(type_)
        except (TypeError, ValueError):
            raise UsageError(
                f"field {name!r} has the type {repr_of(type_)}; allowed: a type of pyarrow, or its name, such as "
                "'string', 'int64', 'float64', 'bool', 'binary', 'timestamp[us]', 'date32'"
            ) from None
        fields.append((name, kind))
    return pyarrow.schema(fields)


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

    wrong = _strangers(values, type_)
    if wrong:
        values = list(values)
        for row in wrong:
            values[row] = None
    pieces: list[Any] = []
    refused: dict[int, str] = {}
    _convert(values, 0, type_, pieces, refused)
    misfits = [Misfit(row, _why(name, type_, value, "")) for row, value in wrong.items()]
    misfits += [Misfit(row, _why(name, type_, values[row], text)) for row, text in refused.items()]
    return pyarrow.chunked_array(pieces, type_), misfits


def _why(name: str, type_: Any, value: Any, text: str) -> str:
    more = f" ({text})" if text else ""
    return f"field {name!r} is {repr_of(value)} of type {type_name(value)}, which a column of {type_} cannot hold{more}"


def _convert(values: Sequence[Any], first: int, type_: Any, pieces: list[Any], refused: dict[int, str]) -> None:
    """Append the arrays of some rows, from `first` on; halve them until each misfit is alone."""
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


def _strangers(values: Sequence[Any], type_: Any) -> dict[int, Any]:
    """The rows whose value Arrow would refuse or change, with the value."""
    kinds = set(map(type, values))
    if not _needs_a_look(type_) and all(_takes(type_, kind) for kind in kinds):
        return {}
    return {row: value for row, value in enumerate(values) if not _fits(type_, value)}


def _needs_a_look(type_: Any) -> bool:
    """Whether the class of a value does not tell if it fits."""
    from pyarrow import types

    return bool(types.is_nested(type_) or types.is_timestamp(type_) or types.is_date(type_))


def _takes(type_: Any, kind: type) -> bool:
    """Whether a column takes values of a class. Arrow itself refuses the rest."""
    from pyarrow import types

    if kind is type(None):
        return True
    try:
        if types.is_integer(type_):
            return issubclass(kind, numbers.Integral) and not issubclass(kind, bool)
        if types.is_floating(type_):
            return issubclass(kind, numbers.Real) and not issubclass(kind, bool)
        return issubclass(kind, _classes(type_))
    except Exception:  # a user's metaclass
        return False


def _classes(type_: Any) -> type | tuple[type, ...]:
    from pyarrow import types

    if types.is_string(type_) or types.is_large_string(type_):
        return str
    if types.is_binary(type_) or types.is_large_binary(type_) or types.is_fixed_size_binary(type_):
        return bytes, bytearray, memoryview
    if types.is_timestamp(type_):
        return datetime.datetime
    if types.is_date(type_):
        return datetime.date
    if types.is_time(type_):
        return datetime.time
    if types.is_duration(type_):
        return datetime.timedelta
    if types.is_decimal(type_):
        return decimal.Decimal, int
    return object


def _fits(type_: Any, value: Any) -> bool:
    from pyarrow import types

    if value is None:
        return True
    if not _takes(type_, type(value)):
        return False
    try:
        if types.is_timestamp(type_):
            return (value.tzinfo is None) is (type_.tz is None)
        if types.is_date(type_):
            return not isinstance(value, datetime.datetime)
        if types.is_struct(type_):
            return _fits_struct(type_, value)
        if types.is_map(type_):
            return all(_fits(type_.key_type, key) and _fits(type_.item_type, item) for key, item in dict(value).items())
        if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
            return not isinstance(value, str | bytes | Mapping) and _fit_all(type_.value_type, value)
    except Exception:  # of a user's object
        return False
    return True


def _fits_struct(type_: Any, value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    parts = {field.name: field.type for field in type_}
    return value.keys() <= parts.keys() and all(_fits(parts[name], part) for name, part in value.items())


def _fit_all(type_: Any, values: Iterable[Any]) -> bool:
    return all(_fits(type_, value) for value in values)
