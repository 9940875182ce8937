"""Reads a frame in which some values cannot be rebuilt: each value by itself, and without those that raise.

The frame is read once more, with *sketches* instead of the objects that users' code makes, so that none of that code
runs. Then each value of each row is written and read alone, now for real. A class whose module is missing here, or
whose `__setstate__` raises, so costs the rows that hold its objects, and no others.

Guarantees: values that can be rebuilt come out as `pickle.loads` would make them, except that an object which several
values hold becomes several objects. A stream that is itself damaged is not repaired: the error is raised.

Slow: use it only when `pickle.loads` has failed.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Sequence
from typing import Any

from squall.engine.foreign.text import text_of_error


class Broken:
    """Stands for a value that could not be made, and says why."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why


def rescue(data: bytes | memoryview, buffers: Sequence[Any]) -> list[Any]:
    """A frame's content, with a `Broken` in place of each value that cannot be rebuilt. Raises if the stream cannot be
    read to its end."""
    batches, *tracking = _Sketcher(io.BytesIO(data), buffers=buffers).load()
    return [[_batch(*packed) for packed in batches], *_rebuilt(tracking)]


def _batch(*packed: Any) -> tuple[Any, ...]:
    *runs, columns = packed
    runs = _rebuilt(runs)
    if isinstance(columns, tuple):
        length, columns = columns
        return *runs, (length, list(map(_column, columns)))
    return *runs, list(map(_column, columns)) if isinstance(columns, list) else columns


def _column(column: Any) -> Any:
    """Its values, each by itself. A user's array is the only value of its tuple; another holds whole numbers."""
    if isinstance(column, list | tuple):
        return type(column)(map(_value, column))
    return _rebuilt(column) if isinstance(column, _Sketch) else column


def _value(value: Any) -> Any:
    try:
        return _rebuilt(value)
    except BaseException as error:  # whatever users' code raises
        return Broken(text_of_error(error))


def _rebuilt(value: Any) -> Any:
    stream = io.BytesIO()
    _Writer(stream, 5).dump(value)
    stream.seek(0)
    return _Reader(stream).load()


class _Sketched(type):
    """Stands for a class or function of users' code; a call makes a sketch of what it would return."""

    target: tuple[str, str]
    """Module and name."""

    def __call__(cls, *args: Any) -> Any:
        return _sketch(cls, cls, args)


class _Sketch(metaclass=_Sketched):
    """Stands for an object: keeps what a stream does to it, and has that written again."""

    made: tuple[Any, tuple[Any, ...]]
    state: Any = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _sketch(cls, _new, (cls, args, kwargs))

    def __call__(self, *args: Any) -> Any:
        return _sketch(_Sketch, self, args)

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, item: Any) -> None:
        self.extend((item,))

    def extend(self, items: Iterable[Any]) -> None:
        self.items = [*getattr(self, "items", ()), *items]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.pairs = [*getattr(self, "pairs", ()), (key, value)]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        items, pairs = getattr(self, "items", None), getattr(self, "pairs", None)
        return *self.made, self.state, items and iter(items), pairs and iter(pairs)


def _sketch(kind: type[Any], make: Any, args: tuple[Any, ...]) -> _Sketch:
    sketch: _Sketch = object.__new__(kind)
    sketch.made = make, args
    return sketch


def _new(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return cls.__new__(cls, *args, **kwargs)


class _Sketcher(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _Sketched("_Sketch", (_Sketch,), {"target": (module, name)})


class _Writer(pickle.Pickler):
    def persistent_id(self, value: Any) -> tuple[str, str] | None:
        return value.target if isinstance(value, _Sketched) else None


class _Reader(pickle.Unpickler):
    def persistent_load(self, target: tuple[str, str]) -> Any:
        return super().find_class(*target)
