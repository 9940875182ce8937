"""Reads the columns of a file as the types that a query names, if that changes no value.

Guarantees that a value is what the file has, or that there is an error: Arrow casts a text to a number, and any number
but 0 to true, without a word. Relies on Arrow's safe casts within a kind of types. Thread: any.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from squall.engine.errors import UsageError

if TYPE_CHECKING:
    import pyarrow


def check_types(path: Path, there: pyarrow.Schema, wanted: pyarrow.Schema) -> None:
    """UsageError if a column that is wanted is missing, or of a type as which it cannot be read."""
    for field in wanted:
        if field.name not in there.names:
            raise UsageError(f"{path} has no column {field.name!r}; allowed: {', '.join(there.names)}")
        found = there.field(field.name).type
        if not _fits(found, field.type):
            raise UsageError(f"column {field.name!r} of {path} is {found}, and cannot be read as {field.type}")


def cast(batch: pyarrow.RecordBatch, wanted: pyarrow.Schema, path: Path) -> pyarrow.RecordBatch:
    """The columns that are wanted. UsageError if a value is too large for its type."""
    import pyarrow

    try:
        return batch.select(wanted.names).cast(wanted)
    except pyarrow.ArrowInvalid as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(f"{path} has a value that the types of the query do not hold: {reason}") from error


def _fits(found: pyarrow.DataType, wanted: pyarrow.DataType) -> bool:
    from pyarrow import types

    if types.is_dictionary(found):
        found = found.value_type
    if types.is_floating(found) and types.is_floating(wanted):
        return bool(found.bit_width <= wanted.bit_width)
    return _kind(found) == _kind(wanted)


def _kind(type_: pyarrow.DataType) -> str | int:
    """What types have in common between which a safe cast changes no value."""
    from pyarrow import types

    kinds = {
        "exact number": (types.is_integer, types.is_decimal),
        "text": (types.is_string, types.is_large_string, types.is_string_view),
        "bytes": (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view),
        "list": (types.is_list, types.is_large_list, types.is_fixed_size_list),
        "date": (types.is_date,),
        "time of day": (types.is_time,),
    }
    return next((kind for kind, tests in kinds.items() if any(test(type_) for test in tests)), int(type_.id))
