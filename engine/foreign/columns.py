"""Columns of values as users hand them over: lists, `array`, numpy and Arrow arrays.

Guarantees: a column is never changed or copied without need; what is taken from it is a column of the same kind. numpy
and Arrow are only used if the user's own code has imported them: importing numpy starts threads, and a process that
forks workers must not have any.

Pure. Thread: any.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import compress
from typing import Any

from squall.engine.foreign.text import type_name

ALLOWED = "a list, an array, or a numpy or Arrow array"


def _numpy() -> Any:
    return sys.modules.get("numpy")


def _is_numpy(column: Any) -> bool:
    numpy = _numpy()
    return numpy is not None and isinstance(column, numpy.ndarray)


def _is_arrow(column: Any) -> bool:
    arrow = sys.modules.get("pyarrow")
    return arrow is not None and isinstance(column, arrow.Array | arrow.ChunkedArray)


def column_mistake(column: Any) -> str | None:
    """Why something is no column; None if it is one."""
    if type(column) is list or isinstance(column, list | tuple | array):
        return None
    if _is_numpy(column):
        return None if column.ndim else "a numpy array without dimensions"
    return None if _is_arrow(column) else f"a value of type {type_name(column)}"


def values_of(column: Any) -> Sequence[Any]:
    """The values of a column as Python objects, as a row has them."""
    if type(column) is list or isinstance(column, list | tuple | array):
        return column
    if _is_arrow(column):
        return column.to_pylist()  # type: ignore[no-any-return]
    # A row of a table is a row's value; an element of a column is a number or a text.
    return column.tolist() if column.ndim == 1 else list(column)


def value_at(column: Any, index: int) -> Any:
    """One value of a column as a Python object."""
    if type(column) is list:
        return column[index]
    if _is_arrow(column):
        return column[index].as_py()
    value = column[index]
    return value.item() if _is_numpy(column) and column.ndim == 1 and hasattr(value, "item") else value


def select(column: Any, wanted: bytes) -> Any:
    """The values of a column where `wanted` is not 0."""
    if type(column) is list:
        return list(compress(column, wanted))
    if isinstance(column, array):
        return array(column.typecode, compress(column, wanted))
    if _is_numpy(column):
        return column[_numpy().frombuffer(wanted, dtype=bool)]
    if _is_arrow(column):
        numpy = _numpy()
        mask = list(map(bool, wanted)) if numpy is None else numpy.frombuffer(wanted, dtype=bool)
        return column.filter(sys.modules["pyarrow"].array(mask))
    return list(compress(column, wanted))


def column_bytes(column: Any) -> int | None:
    """The memory of a column that tells it; None for a list."""
    if isinstance(column, array):
        return len(column) * column.itemsize
    return None if isinstance(column, list | tuple) else int(column.nbytes)
