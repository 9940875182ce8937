"""An object as `prepare` left it: what has changed since is stored, and what cannot be stored must not have changed.

Guarantees: no change is left out in silence, of an attribute nor of an attribute of the class. Two looks at one object
differ if something that pickle sees in it has changed, however deep; in place of what cannot be pickled (a lock, a
socket) stands its type. Machinery is not looked into: threads, event loops, executors and the like of the standard
library, and objects of installed packages, which change as they work and are no state of the topology. Generators are
seen by where they are.
"""

from __future__ import annotations

import hashlib
import io
import sys
from queue import SimpleQueue
from types import CodeType, FunctionType, GeneratorType, ModuleType
from typing import Any

from squall.pipeline.underneath.snapshot import Engine, Pickler, Stored, attempt, attributes

#: Modules of the standard library whose objects hold values of the user's.
_HOLDERS = frozenset({"builtins", "collections", "copy", "dataclasses", "enum", "functools", "queue", "types"})


class Baseline:
    """The attributes as `prepare` left them; with `known=False`, it is not known how."""

    def __init__(self, user: Any, engine: Engine, known: bool = True) -> None:
        self._before: dict[str, bytes] = {}
        self._looks: dict[str, Look] = {}
        for name, value in attributes(user).items() if known else ():
            data, _ = attempt(engine, value)
            if data is not None:
                self._before[name] = data
            else:
                self._looks[name] = Look(engine, value)

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
            look = Look(engine, value)
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


def look_at_classes(user: Any, engine: Engine) -> dict[str, Look]:
    """The values that the user's classes of an object hold themselves."""
    looks = {}
    for cls in type(user).__mro__:
        if _is_machinery(cls) or cls is object:
            continue
        for name, value in vars(cls).items():
            if not (name.startswith(("__", "_abc_")) or callable(value) or hasattr(value, "__get__")):
                looks[f"{cls.__qualname__}.{name}"] = Look(engine, value)
    return looks


class Look:
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
        """Whether there is nothing in it to see: a file, a socket, machinery."""

    def differs(self, other: Look) -> bool:
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
        if isinstance(obj, GeneratorType):
            frame = obj.gi_frame
            return _seen, (obj.__qualname__, None if frame is None else (frame.f_lasti, dict(frame.f_locals)))
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
        told: Any = None
        if isinstance(obj, SimpleQueue):
            told = obj.qsize()
        elif type(obj).__module__ in ("_hashlib", "_blake2", "_hmac"):
            told = obj.hexdigest()
        if obj is self._first:
            self.first_is_opaque = told is None
        return _seen, (type(obj).__module__, type(obj).__qualname__, told)


def _seen(*what: Any) -> Any:
    return what


def _is_machinery(cls: type) -> bool:
    module = cls.__module__ if isinstance(cls.__module__, str) else ""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return top not in _HOLDERS
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return top == "squall" or "site-packages" in file or "dist-packages" in file
