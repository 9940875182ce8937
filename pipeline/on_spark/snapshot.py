"""Stores the object of a task between two batches, and brings it back in any process.

Two ways, chosen per task:

    whole        all attributes are stored; `prepare` is not called again
    prepared     `prepare` is called again, then the attributes are set that have changed since it was: for objects that
                 hold what no other process can use (files, sockets, threads, hooks)

Guarantees: what was stored is restored exactly, with shared references; what cannot be stored, and is as `prepare` made
it, is made anew. No change is left out in silence, of an attribute nor of an attribute of the class: two looks at one
object differ if something that pickle sees in it has changed, however deep; in place of what cannot be pickled (a lock,
a socket) stands its type. Machinery is not looked into: threads, event loops, executors and the like of the standard
library, and objects of installed packages. Generators count as changed, as nobody can see where they are. The engine's
own objects among the attributes (collector, context, metrics) are those of the new life. Relies on users' objects being
picklable by cloudpickle otherwise, which `__getstate__` may arrange.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from queue import SimpleQueue
from types import CodeType, FunctionType, GeneratorType, ModuleType
from typing import Any

import cloudpickle

from squall.engine.api.user_metrics import GAUGE, UserMetrics
from squall.engine.foreign.text import text_of_error

#: Modules of the standard library whose objects hold values of the user's.
_HOLDERS = frozenset({"builtins", "collections", "copy", "dataclasses", "enum", "functools", "queue", "types"})
_HASHES = frozenset({"_hashlib", "_blake2", "_hmac"})

_here: ContextVar[Mapping[str, Any]] = ContextVar("the engine's objects of the life that is being restored")


def _mine(name: str) -> Any:
    return _here.get()[name]


def _my_metric(kind: str, component: str, task: int, name: str) -> Any:
    return _metric_of(_mine("metrics"), kind, component, task, name)


def _metric_of(metrics: Any, kind: str, component: str, task: int, name: str) -> Any:
    return getattr(metrics, kind)(component, task, name)


@dataclass
class Engine:
    """The engine's objects that a task may keep, by name."""

    named: dict[str, Any] = field(default_factory=dict)

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
        self._found: dict[int, tuple[Callable[..., Any], tuple[Any, ...]]] = {
            id(value): (_mine, (name,)) for name, value in engine.named.items()
        }
        metrics: UserMetrics | None = engine.named.get("metrics")
        for one in metrics.readings() if metrics else ():
            if one.kind != GAUGE:
                which = one.kind, one.component, one.task, one.name
                self._found[id(_metric_of(metrics, *which))] = _my_metric, which

    def reducer_override(self, obj: Any) -> Any:
        return self._found.get(id(obj)) or super().reducer_override(obj)


@dataclass(frozen=True)
class Stored:
    """The attributes of one task's object."""

    prepared: bool
    """True if `prepare` is to be called again."""
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


class Baseline:
    """The attributes as `prepare` left them; with `known=False`, it is not known how."""

    def __init__(self, user: Any, engine: Engine, known: bool = True) -> None:
        self._before: dict[str, bytes] = {}
        self._looks: dict[str, BaselineLook] = {}
        for name, value in attributes(user).items() if known else ():
            data, _ = attempt(engine, value)
            if data is not None:
                self._before[name] = data
            else:
                self._looks[name] = BaselineLook(engine, value)

    def changed(self, user: Any, engine: Engine) -> Stored:
        """Store what is different now, as far as it can be."""
        kept: dict[str, Any] = {}
        left_out: list[str] = []
        lost: list[str] = []
        for name, value in attributes(user).items():
            data, why = attempt(engine, value)
            if data is not None:
                if self._before.get(name) != data:
                    kept[name] = value
                continue
            look = BaselineLook(engine, value)
            before = self._looks.get(name)
            is_as_before = look.is_bare if before is None else not look.differs(before)
            (left_out if is_as_before else lost).append(f"{name} ({why})")
        return Stored(True, engine.dumps(kept), tuple(left_out), tuple(lost))


def store(user: Any, engine: Engine, baseline: Baseline | None) -> Stored:
    """Store an object; `baseline` if it is to be prepared again."""
    if baseline is not None:
        return baseline.changed(user, engine)
    data, _ = attempt(engine, attributes(user))
    if data is not None:
        return Stored(False, data)
    # Something was opened only after `prepare`: what is there before it is opened, `prepare` makes again.
    return Baseline(user, engine, known=False).changed(user, engine)


def look_at_classes(user: Any, engine: Engine) -> dict[str, BaselineLook]:
    """The values that the user's classes of an object hold themselves."""
    looks = {}
    for cls in type(user).__mro__:
        if _is_machinery(cls) or cls is object:
            continue
        for name, value in vars(cls).items():
            if not (name.startswith(("__", "_abc_")) or callable(value) or hasattr(value, "__get__")):
                looks[f"{cls.__qualname__}.{name}"] = BaselineLook(engine, value)
    return looks


class BaselineLook:
    """A look at a value."""

    def __init__(self, engine: Engine, value: Any) -> None:
        buffer = io.BytesIO()
        pickler = _Tolerant(buffer, engine)
        try:
            pickler.dump(value)
            self.digest: str | None = hashlib.sha256(buffer.getvalue()).hexdigest()
        except Exception:  # of users' objects; nothing is known of it then, and so it has changed
            self.digest = None
        self.is_bare = pickler.first_is_opaque
        """True if pickle sees nothing inside it: a file, a socket, machinery."""

    def differs(self, other: BaselineLook) -> bool:
        return self.digest is None or self.digest != other.digest


class _Tolerant(Pickler):
    def __init__(self, file: io.BytesIO, engine: Engine) -> None:
        super().__init__(file, engine)
        self._engine = engine
        self._first: Any = None
        self.first_is_opaque = False

    def dump(self, obj: Any) -> None:
        self._first = obj
        super().dump(obj)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, GeneratorType | SimpleQueue) or type(obj).__module__ in _HASHES:
            raise TypeError(f"what is in a {type(obj).__qualname__} cannot be seen")
        if isinstance(obj, type | FunctionType | CodeType | ModuleType):
            return super().reducer_override(obj)
        if _is_machinery(type(obj)) and not self._can_be_stored(obj):
            return self._opaque(obj)
        found = super().reducer_override(obj)
        if found is not NotImplemented:
            return found
        try:
            reduce = self.dispatch_table.get(type(obj))
            return reduce(obj) if reduce is not None else obj.__reduce_ex__(5)
        except Exception:  # of users' objects
            return self._opaque(obj)

    def _can_be_stored(self, obj: Any) -> bool:
        try:
            self._engine.dumps(obj)
        except Exception:  # of users' objects
            return False
        return True

    def _opaque(self, obj: Any) -> Any:
        self.first_is_opaque |= obj is self._first
        return _seen, (type(obj).__module__, type(obj).__qualname__)


def _seen(*what: Any) -> Any:
    return what


def _is_machinery(cls: type) -> bool:
    module = cls.__module__ if isinstance(cls.__module__, str) else ""
    return is_library(module) and module.partition(".")[0] not in _HOLDERS


def is_library(module: str) -> bool:
    """Return True for a module of the standard library, of Squall or of an installed package."""
    top, file = module.partition(".")[0], getattr(sys.modules.get(module), "__file__", None) or ""
    return top in sys.stdlib_module_names or top == "squall" or "site-packages" in file or "dist-packages" in file
