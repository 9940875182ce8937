"""About how many bytes a tuple holds in memory: exactly enough to bound queues by, and cheap.

Guarantees: never raises, whatever user objects do when asked; looks at a bounded number of objects per value (the rest
of a long list is taken to be like those looked at). What several tuples share is counted once for each: an estimate
that is too high makes a queue stop early, and it flows again when it is shorter.

Pure. Any thread.
"""

from __future__ import annotations

from collections import deque
from itertools import chain, islice
from sys import getsizeof
from typing import Any

_FLAT = frozenset((str, bytes, int, float, bool, type(None), complex, bytearray))
_ITEMS_LOOKED_AT = 8
_MAX_DEPTH = 4
_ROW_BYTES = 64
"""A tuple object and its row in a batch."""
_RUN_BYTES = 128
"""Root, edge and start of a run."""
_UNKNOWN_BYTES = 64
"""An object that will not say."""


def value_bytes(value: Any, depth: int = _MAX_DEPTH) -> int:
    """About how much memory a value holds, with what it is made of."""
    kind = type(value)
    if kind in _FLAT:
        return getsizeof(value)
    try:
        return _deep(value, kind, depth)
    except Exception:  # a user's object that raises when it is asked: taken for a small one
        return _UNKNOWN_BYTES


def _deep(value: Any, kind: type, depth: int) -> int:
    if hasattr(kind, "nbytes"):
        # Arrays and buffers: one that is a view of another has no memory of its own, yet keeps and sends this much.
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
    """About how much memory one tuple holds."""
    size = _ROW_BYTES
    for value in row:
        size += getsizeof(value) if type(value) in _FLAT else value_bytes(value)
    return size


def rows_bytes(rows: list[tuple[Any, ...]], runs: int) -> int:
    """As `estimate`, of every row."""
    return sum(map(row_bytes, rows)) + _RUN_BYTES * runs


def estimate(rows: list[tuple[Any, ...]], runs: int) -> int:
    """About how much the rows of a batch with so many runs hold, after a look at two of them."""
    count, size = len(rows), 0
    # One in the middle, and one that is not always in the same row: `runs` moves it from batch to batch.
    for value in chain.from_iterable(rows) if count < 3 else (*rows[count >> 1], *rows[runs % count]):
        size += getsizeof(value) if type(value) in _FLAT else value_bytes(value)
    if count > 2:
        size = size * count >> 1
    return size + _ROW_BYTES * count + _RUN_BYTES * runs
