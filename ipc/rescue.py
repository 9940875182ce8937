"""Reads the sound values of a frame in which others cannot be rebuilt.

Guarantees
    * If users' code raises while a value is rebuilt (its class's module, `__new__`, `__setstate__`, `__hash__` of a
      key, whatever a reduction calls), that value is spoilt, and every value that holds it; all others come out as
      `pickle.loads` would make them. BaseException and MemoryError included.
    * A stream that is damaged itself is not repaired: the error is raised.

Slow: it is pickle's unpickler written in Python, some ten times slower than the one in C. Use it only when that one has
failed; values are then rebuilt a second time.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from squall.engine.foreign.text import text_of_error


class Broken:
    """Stands for an object that could not be made."""

    __slots__ = ()


class Unread:
    """Which of the rebuilt objects differ from what was sent, and why."""

    def __init__(self) -> None:
        self._why: dict[int, tuple[Any, str]] = {}
        """By identity; holds the object, so that no other gets its address."""

    def why(self, value: Any) -> str | None:
        """Why the value is spoilt; None if it is whole."""
        found = self._why.get(id(value))
        return None if found is None else found[1]

    def spoil(self, value: Any, why: str) -> None:
        """Mark a value as spoilt."""
        self._why.setdefault(id(value), (value, why))

    def spread(self, value: Any, parts: Iterable[Any]) -> bool:
        """Mark a value as spoilt if one of its parts is; whether one is."""
        for part in parts:
            why = self.why(part)
            if why is not None:
                self.spoil(value, why)
                return True
        return False

    def broken(self, why: str) -> Broken:
        """A new stand-in."""
        value = Broken()
        self.spoil(value, why)
        return value


def rescue(data: bytes | memoryview, buffers: Sequence[Any]) -> tuple[Any, Unread]:
    """The stream's content, and which parts of it are spoilt. Raises if the stream cannot be read to its end."""
    unpickler = _Tolerant(io.BytesIO(data), buffers=buffers)
    return unpickler.load(), unpickler.unread


_SHARED = frozenset({type(None), bool, int, str, bytes, float, tuple})
"""Types whose objects many values may share."""
_Python: Any = pickle._Unpickler
"""The unpickler in Python, whose operations have the same names in 3.11 to 3.14."""


class _Tolerant(_Python):  # type: ignore[misc]
    """Guards each operation that can reach users' code; each that puts parts together passes on what is spoilt."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(_Python.dispatch)

    def __init__(self, file: io.BytesIO, buffers: Sequence[Any]) -> None:
        super().__init__(file, buffers=buffers)
        self.unread = Unread()

    def _make(self, make: Callable[[], Any], parts: Iterable[Any]) -> Any:
        """Make a value of parts; a stand-in if a part is spoilt, or users' code raises."""
        for part in parts:
            why = self.unread.why(part)
            if why is not None:
                return self.unread.broken(why)
        try:
            return make()
        except BaseException as error:
            return self.unread.broken(text_of_error(error))

    def _change(self, value: Any, parts: Sequence[Any], change: Callable[[], Any]) -> None:
        """Put parts into an existing value; spoil it if a part is spoilt, or if it does not take them."""
        self.unread.spread(value, parts)
        if isinstance(value, Broken):
            return
        try:
            change()
        except BaseException as error:
            self.unread.spoil(value, text_of_error(error))

    # ---- classes and functions ----

    def find_class(self, module: str, name: str) -> Any:
        return self._make(lambda: super(_Tolerant, self).find_class(module, name), ())

    # ---- what is called ----

    def load_reduce(self) -> None:
        args = self.stack.pop()
        func = self.stack[-1]
        self.stack[-1] = self._make(lambda: func(*args), (func, args))

    def load_newobj(self) -> None:
        args = self.stack.pop()
        kind = self.stack[-1]
        self.stack[-1] = self._make(lambda: kind.__new__(kind, *args), (kind, args))

    def load_newobj_ex(self) -> None:
        kwargs = self.stack.pop()
        args = self.stack.pop()
        kind = self.stack[-1]
        self.stack[-1] = self._make(lambda: kind.__new__(kind, *args, **kwargs), (kind, args, kwargs))

    def load_build(self) -> None:
        state, value, depth = self.stack[-1], self.stack[-2], len(self.stack)
        why = self.unread.why(state)
        if why is None and not isinstance(value, Broken):
            try:
                super().load_build()
            except BaseException as error:
                why = text_of_error(error)
        del self.stack[depth - 1 :]
        if why is not None and type(value) in _SHARED:
            self.stack[-1] = self.unread.broken(why)
        elif why is not None:
            self.unread.spoil(value, why)

    # ---- what is put together ----

    def _load_tuple(self, count: int) -> None:
        parts = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self._push_tuple(parts)

    def _push_tuple(self, parts: tuple[Any, ...]) -> None:
        self.unread.spread(parts, parts)
        self.stack.append(parts)

    def load_tuple(self) -> None:
        self._push_tuple(tuple(self.pop_mark()))

    def load_tuple1(self) -> None:
        self._load_tuple(1)

    def load_tuple2(self) -> None:
        self._load_tuple(2)

    def load_tuple3(self) -> None:
        self._load_tuple(3)

    def load_append(self) -> None:
        part = self.stack.pop()
        value = self.stack[-1]
        self._change(value, (part,), lambda: value.append(part))

    def load_appends(self) -> None:
        parts = self.pop_mark()
        value = self.stack[-1]

        def extend() -> None:
            if hasattr(value, "extend"):
                value.extend(parts)
            else:
                for part in parts:
                    value.append(part)

        self._change(value, parts, extend)

    def load_setitem(self) -> None:
        part = self.stack.pop()
        key = self.stack.pop()
        value = self.stack[-1]
        self._change(value, (key, part), lambda: value.__setitem__(key, part))

    def load_setitems(self) -> None:
        items = self.pop_mark()
        value = self.stack[-1]

        def put() -> None:
            for key, part in zip(items[::2], items[1::2], strict=True):
                value[key] = part

        self._change(value, items, put)

    def load_additems(self) -> None:
        parts = self.pop_mark()
        value = self.stack[-1]

        def add() -> None:
            if isinstance(value, set):
                value.update(parts)
            else:
                for part in parts:
                    value.add(part)

        self._change(value, parts, add)

    def load_frozenset(self) -> None:
        parts = self.pop_mark()
        self.stack.append(self._make(lambda: frozenset(parts), parts))


_Tolerant.dispatch |= {
    opcode[0]: load
    for opcode, load in (
        (pickle.REDUCE, _Tolerant.load_reduce), (pickle.NEWOBJ, _Tolerant.load_newobj),
        (pickle.NEWOBJ_EX, _Tolerant.load_newobj_ex), (pickle.BUILD, _Tolerant.load_build),
        (pickle.TUPLE, _Tolerant.load_tuple), (pickle.TUPLE1, _Tolerant.load_tuple1),
        (pickle.TUPLE2, _Tolerant.load_tuple2), (pickle.TUPLE3, _Tolerant.load_tuple3),
        (pickle.APPEND, _Tolerant.load_append), (pickle.APPENDS, _Tolerant.load_appends),
        (pickle.SETITEM, _Tolerant.load_setitem), (pickle.SETITEMS, _Tolerant.load_setitems),
        (pickle.ADDITEMS, _Tolerant.load_additems), (pickle.FROZENSET, _Tolerant.load_frozenset),
    )
}
