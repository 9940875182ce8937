"""Columns of values as users hand them over: lists, `array`, numpy and Arrow arrays.

Guarantees: a column is never changed or copied without need; what is taken from it is a column of the same kind. numpy
and Arrow are only used if the user's own code has imported them: importing numpy starts threads, and a process that
forks workers must not have any.

Pure. Thread: any.
"""

from __future__ import annotations

import copyreg
import sys
from array import array
from collections.abc import Sequence
from itertools import chain, compress, count, repeat
from typing import Any, NamedTuple

from squall.engine.foreign.text import type_name

ALLOWED = "a list, an array, or a numpy or Arrow array"


def _numpy() -> Any:
    return sys.modules.get("numpy")


def _is_numpy(column: Any) -> bool:
    numpy = _numpy()
    return numpy is not None and isinstance(column, numpy.ndarray)


def _is_arrow(column: Any) -> bool:
    arrow = sys.modules.get("pyarrow")
    if arrow is None or not isinstance(column, arrow.Array | arrow.ChunkedArray):
        return False
    if arrow.MonthDayNano not in copyreg.dispatch_table:
        # Pickle cannot find the class of Arrow's intervals by its name, and they may leave their column as values.
        copyreg.pickle(arrow.MonthDayNano, lambda span: (_month_day_nano, tuple(span)))
    return True


def _month_day_nano(*parts: int) -> Any:
    import pyarrow

    return pyarrow.MonthDayNano(parts)


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


def ids_of(message_ids: Any) -> Sequence[Any]:
    """Message ids, which may be a column or anything that can be gone through once. TypeError for something else."""
    given = values_of(message_ids) if column_mistake(message_ids) is None else message_ids
    return given if type(given) is range else list(given)


def parents_of(rows: int, counts: Any, parents: Any) -> Sequence[int]:
    """The input row that each of `rows` emitted ones was made from, as the arguments of `emit_batch` say."""
    if parents is not None:
        return list(values_of(parents))
    return range(rows) if counts is None else list(chain.from_iterable(map(repeat, count(), values_of(counts))))


class Distinct(NamedTuple):
    """A column as its different values, and which of them each row has."""

    values: Sequence[Any]
    codes: Any
    """A numpy array: index in `values` of each row."""

    def spell_out(self, of_values: bytes) -> bytes:
        """A byte of each row, which is that of its value."""
        return _numpy().frombuffer(of_values, dtype="u1")[self.codes].tobytes()  # type: ignore[no-any-return]


def distinct(column: Any) -> Distinct | None:
    """The different values of an Arrow column, each at least once; None if they cannot be found without a look at each
    row, or the column is of another kind."""
    numpy = _numpy()
    if numpy is None or not _is_arrow(column):
        return None
    arrow = sys.modules["pyarrow"]
    if isinstance(column, arrow.ChunkedArray):
        column = column.combine_chunks()
    is_encoded = isinstance(column, arrow.DictionaryArray)
    kind, types = column.type.value_type if is_encoded else column.type, arrow.types
    # Of others, Arrow has no dictionaries, or loses the nulls (of views).
    if not any(is_it(kind) for is_it in (
        types.is_string, types.is_large_string, types.is_integer, types.is_float32, types.is_float64,
        types.is_binary, types.is_large_binary,
    )):
        return None
    if not is_encoded:
        column = column.dictionary_encode(null_encoding="encode")
    elif column.null_count or column.dictionary.null_count or len(column.dictionary) > len(column):
        # A slice has the dictionary of the whole.
        column = column.dictionary_decode().dictionary_encode(null_encoding="encode")
    return Distinct(column.dictionary.to_pylist(), column.indices.to_numpy(zero_copy_only=False))


def is_text(values: Sequence[Any]) -> bool:
    """Return True if all values are plain text."""
    return list(map(type, values)).count(str) == len(values)


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
        return _select_arrow(column, wanted)
    return list(compress(column, wanted))


def _select_arrow(column: Any, wanted: bytes) -> Any:
    arrow, numpy = sys.modules["pyarrow"], _numpy()
    mask = list(map(bool, wanted)) if numpy is None else numpy.frombuffer(wanted, dtype=bool)
    try:
        return _pruned(column.filter(arrow.array(mask)))
    except arrow.ArrowNotImplementedError:  # of views of text, for one
        return arrow.array(list(compress(column.to_pylist(), wanted)), column.type)


def _pruned(column: Any) -> Any:
    """An Arrow column that was taken from another, without values in its dictionary that no row has."""
    arrow, numpy = sys.modules["pyarrow"], _numpy()
    if numpy is None or not isinstance(column, arrow.DictionaryArray) or column.null_count or column.type.ordered:
        return column
    values, codes = column.dictionary, column.indices.to_numpy()
    used = numpy.zeros(len(values), dtype=bool)
    used[codes] = True
    kept = int(used.sum())
    if kept == len(values):
        return column
    places = (numpy.cumsum(used) - 1).astype(codes.dtype)
    return arrow.DictionaryArray.from_arrays(places[codes], values.filter(arrow.array(used)), safe=False)


def column_bytes(column: Any) -> int | None:
    """The memory of a column that tells it; None for a list."""
    if isinstance(column, array):
        return len(column) * column.itemsize
    return None if isinstance(column, list | tuple) else int(column.nbytes)
