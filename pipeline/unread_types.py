"""Types of Parquet that Spark does not read, told before it ends with its own names for them.

Decides only, by schemas of Arrow. Timestamps in nanoseconds are in `nanoseconds.py`: `squall verify` reads those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

#: Of a decimal of Spark's.
MOST_DIGITS = 38


def unread_column(schema: Iterable[pyarrow.Field]) -> str | None:
    """The first column that Spark does not read, in words; None if it reads all."""
    for field in schema:
        for type_ in _within(field.type):
            if advice := _advice(type_):
                where = "" if type_ is field.type else ", within it,"
                return f"column {field.name!r} with{where} type {type_}, which Spark does not read; write {advice}"
    return None


def _advice(type_: pyarrow.DataType) -> str:
    from pyarrow import types

    if types.is_time(type_):
        return "it as a text, or as a whole number"
    if types.is_float16(type_):
        return "it as float32"
    if types.is_decimal(type_) and type_.precision > MOST_DIGITS:
        return f"it as a text, or with {MOST_DIGITS} digits at most"
    return "it as a text" if str(type_) == "extension<arrow.uuid>" else ""


def _within(type_: pyarrow.DataType) -> Iterator[pyarrow.DataType]:
    """A type, and those inside it."""
    from pyarrow import types

    yield type_
    if types.is_nested(type_):
        for number in range(type_.num_fields):
            yield from _within(type_.field(number).type)
