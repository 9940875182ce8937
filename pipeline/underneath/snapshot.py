"""Stores the object of a task between two batches, and brings it back in any process.

Two ways, chosen per task:

    whole        all attributes are stored; `prepare` is not called again
    prepared     `prepare` is called again, then the attributes are set that have changed since it was: for objects that
                 hold what no other process can use (files, sockets, threads, hooks)

Guarantees: what was stored is restored exactly, with shared references; what cannot be stored, and is as `prepare` made
it (`baseline` looks), is made anew. The engine's own objects among the attributes (collector, context, metrics) are
those of the new life. Relies on users' objects being picklable by cloudpickle otherwise, which `__getstate__` may
arrange.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from squall.engine.foreign.text import text_of_error

_here: ContextVar[Mapping[str, Any]] = ContextVar("the engine's objects of the life that is being restored")


def _mine(name: str) -> Any:
    return _here.get()[name]


@dataclass
class Engine:
    """The engine's objects that a task may keep, by name."""

    named: dict[str, Any] = field(default_factory=dict)
    find: Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]] | None] = lambda value: None
    """How to get one that has no name: a function and its arguments."""

    def dumps(self, value: Any) -> bytes:
        """Pickle a value. Raises whatever the value's own code raises, too."""
        buffer = io.BytesIO()
        Pickler(buffer, self).dump(value)
        return buffer.getvalue()

    def loads(self, data: bytes) -> Any:
        token = _here.set(self.named)
        try:
            return pickle.loads(data)
        finally:
            _here.reset(token)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, engine: Engine) -> None:
        super().__init__(file, protocol=5)
        self._names = {id(value): name for name, value in engine.named.items()}
        self._find = engine.find

    def reducer_override(self, obj: Any) -> Any:
        name = self._names.get(id(obj))
        if name is not None:
            return _mine, (name,)
        return self._find(obj) or super().reducer_override(obj)


@dataclass(frozen=True)
class Stored:
    """The attributes of one task's object."""

    prepared: bool
    """Whether `prepare` is to be called again."""
    data: bytes
    """Attribute -> value."""
    left_out: tuple[str, ...] = ()
    """What could not be stored, and why: `prepare` makes it again."""
    lost: tuple[str, ...] = ()
    """What could not be stored, and why, though it has changed since `prepare`."""


def attributes(user: Any) -> dict[str, Any]:
    """The attributes of an object, those in slots too."""
    found = dict(getattr(user, "__dict__", {}))
    for cls in type(user).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(user, name):
                found[name] = getattr(user, name)
    return found


def restore(user: Any, stored: Stored, engine: Engine) -> None:
    """Set the attributes that were stored."""
    for name, value in engine.loads(stored.data).items():
        setattr(user, name, value)


def can_be_stored_whole(user: Any, engine: Engine) -> bool:
    return attempt(engine, attributes(user))[0] is not None


def open_descriptors() -> frozenset[str]:
    """The descriptors of this process: a task that opens some, though it keeps them as plain numbers, must do so again
    in another process."""
    return frozenset(os.listdir("/proc/self/fd"))


def attempt(engine: Engine, value: Any) -> tuple[bytes | None, str]:
    """A value as bytes, or why that cannot be."""
    try:
        return engine.dumps(value), ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # of users' objects
        return None, text_of_error(error)
