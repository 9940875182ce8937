"""Estimates the bytes that a tuple holds in memory: cheap, and exact enough to bound queues.

Guarantees: never raises, whatever user objects do; looks at a bounded number of objects per value (the rest of a long
list is assumed to be alike). An object shared by several tuples counts once for each: an estimate that is too high only
holds a queue early, until it is shorter.

Pure. Thread: any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain, islice
from sys import getsizeof
from typing import Any, Protocol

from squall.engine.foreign.given_columns import column_bytes

_FLAT = frozenset((str, bytes, int, float, bool, type(None), complex, bytearray))
_ITEMS_LOOKED_AT = 8
_MAX_DEPTH = 4
_ROW_BYTES = 64
"""Size of a tuple object and its row in a batch."""
_REFERENCE_BYTES = 8
"""Size of a value's place in a column."""
_SAMPLES = 8
"""Values of a list that are looked at to size a column."""
_RUN_BYTES = 128
"""Size of a run: its root, edge and start."""
_UNKNOWN_BYTES = 64
"""Size assumed for an object that does not tell its own."""


def value_bytes(value: Any, depth: int = _MAX_DEPTH) -> int:
    """Estimate the bytes that a value holds, with its parts."""
    kind = type(value)
    if kind in _FLAT:
        return getsizeof(value)
    try:
        return _deep(value, kind, depth)
    except Exception:  # a user's object that raises: assumed to be small
        return _UNKNOWN_BYTES


def _deep(value: Any, kind: type, depth: int) -> int:
    if hasattr(kind, "nbytes"):
        # Arrays and buffers: a view has no memory of its own, but keeps this much alive and sends it.
        return int(value.nbytes) + _UNKNOWN_BYTES
    own = getsizeof(value)
    if depth == 0:
        return own
    if isinstance(value, dict):
        pairs = islice(value.items(), _ITEMS_LOOKED_AT)
        return own + _extrapolate([value_bytes(k, depth - 1) + value_bytes(v, depth - 1) for k, v in pairs], len(value))
    if isinstance(value, list | tuple | set | frozenset | deque):
        items = islice(value, _ITEMS_LOOKED_AT)
        return own + _extrapolate([value_bytes(item, depth - 1) for item in items], len(value))
    attributes = getattr(value, "__dict__", None)
    if attributes.__class__ is dict:
        own += sum(value_bytes(one, depth - 1) for one in islice(attributes.values(), _ITEMS_LOOKED_AT))
    slots = getattr(kind, "__slots__", ())
    for name in islice((slots,) if isinstance(slots, str) else slots, _ITEMS_LOOKED_AT):
        own += value_bytes(getattr(value, name, None), depth - 1)
    return own


def _extrapolate(looked_at: list[int], count: int) -> int:
    return sum(looked_at) * count // len(looked_at) if looked_at else 0


def row_bytes(row: tuple[Any, ...]) -> int:
    """Estimate the bytes that one tuple holds."""
    size = _ROW_BYTES
    for value in row:
        size += getsizeof(value) if type(value) in _FLAT else value_bytes(value)
    return size


def rows_bytes(rows: list[tuple[Any, ...]], runs: int) -> int:
    """Estimate as `estimate` does, but from every row."""
    return sum(map(row_bytes, rows)) + _RUN_BYTES * runs


def estimate(rows: list[tuple[Any, ...]], runs: int) -> int:
    """Estimate the bytes that the rows of a batch with so many runs hold, from two of them."""
    count, size = len(rows), 0
    # One row in the middle, and one whose place varies: `runs` moves it from batch to batch.
    for value in chain.from_iterable(rows) if count < 3 else (*rows[count >> 1], *rows[runs % count]):
        size += getsizeof(value) if type(value) in _FLAT else value_bytes(value)
    if count > 2:
        size = size * count >> 1
    return size + _ROW_BYTES * count + _RUN_BYTES * runs


class _Columns(Protocol):
    """Rows by column: `engine.api.columns.Columns`."""

    @property
    def columns(self) -> Sequence[Any]: ...

    def __len__(self) -> int: ...


def columns_bytes(rows: _Columns, runs: int) -> int:
    """Estimate the bytes that rows kept as columns, with so many runs, hold: of lists from a few of their values."""
    count, size = len(rows), 0
    for column in rows.columns:
        known = column_bytes(column)
        if known is not None:
            size += known
        elif count:
            looked_at = column[:: -(-count // _SAMPLES)]
            measure = getsizeof if _FLAT.issuperset(map(type, looked_at)) else value_bytes
            size += _REFERENCE_BYTES * count + _extrapolate(list(map(measure, looked_at)), count)
    return size + _RUN_BYTES * runs
