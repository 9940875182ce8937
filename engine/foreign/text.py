"""Turns users' errors, values and types into text: the only code on the failure path that touches users' objects.

Guarantees
    * No function here raises, whatever the object does: `__str__`, `__repr__`, `__class__`, a metaclass, `sys.exit`.
    * The result is plain text of at most `limit` characters, which all our encodings can carry. A value of 20 MiB is
      not turned into text first.
    * The only users' code called is an exception's `__str__`, never `__repr__`: an object of a user's class is shown by
      its fields if it is a dataclass or a named tuple, else as `<module.Class object>`.

Relies on: the caller being watched (`at_hand`) while it asks for an error's text, as a `__str__` that hangs cannot be
ended from here.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import pathlib
import traceback
import types
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

ERROR_CHARACTERS = 500
VALUE_CHARACTERS = 80
"""Most characters of a value shown in an error message."""
TRACEBACK_CHARACTERS = 16_000
_NAME_CHARACTERS = 100
_FRAMES = 40
_CHAIN = 8
"""Most errors shown of a chain of causes, and of a group: more are not read."""
_DEPTH = 6
_INT_BITS = 4096

_NO_INPUT = "EOF when reading a line"
"""Message of the error that `input()` raises in a worker, which has no input."""

_mro_of = type.__dict__["__mro__"].__get__
_name_of = type.__dict__["__qualname__"].__get__
_module_of = type.__dict__["__module__"].__get__


def type_name(value: object) -> str:
    """The name of the value's class, with its module unless that is a builtin's."""
    return _name_of_class(type(value))


def _name_of_class(kind: type) -> str:
    try:
        name, module = _name_of(kind), _module_of(kind)
        shown = name if module == "builtins" or type(module) is not str else f"{module}.{name}"
        return _plain(shown, _NAME_CHARACTERS)
    except BaseException:  # a class can break its own name; say so
        return "object"


def repr_of(value: object, limit: int = VALUE_CHARACTERS) -> str:
    """Describe a value for a person, in at most `limit` characters."""
    try:
        return _plain(_Shown(limit).text(value), limit)
    except BaseException:  # the caller is reporting another error, which must not be lost
        return _plain(f"<{type_name(value)} object>", limit)


def message_of(error: BaseException, limit: int = ERROR_CHARACTERS) -> str:
    """The error's message: its `str`, if that works."""
    try:
        if type(error).__str__ is BaseException.__str__:
            # As `str` does, but without turning long arguments into text as a whole.
            args = BaseException.__dict__["args"].__get__(error)
            if len(args) != 1:
                return _plain(repr_of(args, limit), limit) if args else ""
            only = args[0]
            return _plain(only, limit) if isinstance_of(only, str) else repr_of(only, limit)
        return _plain(str(error), limit)
    except BaseException as worse:  # report this one instead: the type of the first is known at least
        return f"(its text cannot be read: {type_name(worse)})"


def text_of_error(error: BaseException, limit: int = ERROR_CHARACTERS) -> str:
    """The error's type and message."""
    name = type_name(error)
    kind = name.rpartition(".")[2]
    text = next(iter(message_of(error, limit).strip().splitlines()), "").rstrip()
    shown = f"{kind}: {text}" if text else kind
    if name == "bdb.BdbQuit" or (name == "EOFError" and text == _NO_INPUT):
        shown += " (a worker has no terminal to read from; use `squall run --local`)"
    return shown


def line_of_error(error: BaseException) -> str:
    """The whole message on one line, for an error of which no more is printed."""
    return " | ".join(filter(None, map(str.strip, message_of(error).splitlines())))


def traceback_of(error: BaseException) -> str:
    """The traceback as Python prints it, with causes and members of a group, cut if it is long."""
    text = "".join(_traceback(error, set()))
    if len(text) <= TRACEBACK_CHARACTERS:
        return text
    half = TRACEBACK_CHARACTERS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters ...]\n{text[-half:]}"


def isinstance_of(value: object, kinds: type | tuple[type, ...]) -> bool:
    """As `isinstance`, but by the true class: an object with its own `__class__` may raise in `isinstance`."""
    return issubclass(type(value), kinds)


def _plain(text: str, limit: int) -> str:
    """At most `limit` characters of a text, which may be of a subclass of `str`, without lone surrogates."""
    whole = str.__len__(text)
    cut = str.__getitem__(text, slice(limit if whole <= limit else max(0, limit - 3)))
    if whole > limit:
        cut += "..."
    return cut if cut.isascii() else cut.encode("utf-8", "backslashreplace").decode()


def _traceback(error: BaseException, seen: set[int]) -> Iterator[str]:
    seen.add(id(error))
    try:
        cause, context = _field(error, "__cause__"), _field(error, "__context__")
        before, says = cause, "The above exception was the direct cause of the following exception"
        if before is None and not _field(error, "__suppress_context__"):
            before, says = context, "During handling of the above exception, another exception occurred"
        if before is not None and id(before) not in seen and len(seen) < _CHAIN:
            yield from _traceback(before, seen)
            yield f"\n{says}:\n\n"
        frames = traceback.format_tb(_field(error, "__traceback__"), -_FRAMES)
        if frames:
            yield "Traceback (most recent call last):\n"
            yield from frames
    except Exception as worse:
        yield f"(the rest of the traceback cannot be shown: {type_name(worse)})\n"
    yield f"{_name_of_class(type(error))}: {message_of(error, TRACEBACK_CHARACTERS)}".removesuffix(": ") + "\n"
    if isinstance_of(error, BaseExceptionGroup):
        for inner in BaseExceptionGroup.__dict__["exceptions"].__get__(error)[:_CHAIN]:
            if id(inner) not in seen and len(seen) < _CHAIN:
                yield "  +---------------- in the group:\n"
                yield from ("  | " + line for text in _traceback(inner, seen) for line in text.splitlines(True))


def _field(error: BaseException, name: str) -> Any:
    return BaseException.__dict__[name].__get__(error)


class _Shown:
    """Builds one text, and stops when it is long enough."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._depth = 0

    def text(self, value: object) -> str:
        kind = type(value)
        if self._left <= 0 or self._depth > _DEPTH:
            return "..."
        if issubclass(kind, enum.Enum):
            return self.of_enum(value)  # type: ignore[arg-type]
        for base in _mro_of(kind):
            if base is tuple and kind is not tuple and (fields := _own(kind, "_fields")) is not None:
                return self._fields(kind, zip(fields, tuple.__iter__(value), strict=False))  # type: ignore[arg-type]
            show = _SHOWN_BY.get(base)
            if show is not None:
                text = show(self, value)
                self._left -= len(text)
                return text
        if _own(kind, "__dataclass_fields__") is not None:
            state = object.__getattribute__(value, "__dict__")
            names = _own(kind, "__dataclass_fields__")
            return self._fields(kind, ((name, state[name]) for name in names if name in state))
        self._left -= 20
        return f"<{_name_of_class(kind)} object>"

    def inside(self, opens: str, parts: Iterable[str], closes: str) -> str:
        """Join parts by commas, as long as there is room."""
        self._depth += 1
        texts = []
        for part in parts:
            if self._left <= 0:
                texts.append("...")
                break
            texts.append(part)
            self._left -= 2
        self._depth -= 1
        return opens + ", ".join(texts) + closes

    def each(self, values: Iterable[object]) -> Iterator[str]:
        return (self.text(value) for value in values)

    def _fields(self, kind: type, named: Iterable[tuple[str, object]]) -> str:
        short = _name_of_class(kind).rpartition(".")[2]
        return self.inside(f"{short}(", (f"{name}={self.text(value)}" for name, value in named), ")")

    def of_text(self, value: str) -> str:
        return repr(str.__getitem__(value, slice(self._left + 1)))

    def of_bytes(self, value: bytes) -> str:
        return repr(bytes.__getitem__(value, slice(self._left + 1)))

    def of_bytearray(self, value: bytearray) -> str:
        return f"bytearray({bytes(bytearray.__getitem__(value, slice(self._left + 1)))!r})"

    def of_memory(self, value: memoryview) -> str:
        return f"<memoryview of {value.nbytes:,} bytes>"

    def of_int(self, value: int) -> str:
        bits = int.bit_length(value)
        return int.__repr__(value) if bits <= _INT_BITS else f"<int of {bits:,} bits>"

    def of_tuple(self, value: tuple[object, ...]) -> str:
        closes = ",)" if tuple.__len__(value) == 1 else ")"
        return self.inside("(", self.each(tuple.__iter__(value)), closes)

    def of_list(self, value: list[object]) -> str:
        return self.inside("[", self.each(list.__iter__(value)), "]")

    def of_dict(self, value: dict[object, object]) -> str:
        items = _head(dict.items(value), self._left)
        return self.inside("{", (f"{self.text(key)}: {self.text(item)}" for key, item in items), "}")

    def of_set(self, value: set[object]) -> str:
        if not set.__len__(value):
            return "set()"
        return self.inside("{", self.each(_head(set.__iter__(value), self._left)), "}")

    def of_frozenset(self, value: frozenset[object]) -> str:
        return self.inside("frozenset({", self.each(_head(frozenset.__iter__(value), self._left)), "})")

    def of_enum(self, value: enum.Enum) -> str:
        return f"{_name_of_class(type(value)).rpartition('.')[2]}.{object.__getattribute__(value, '_name_')}"

    def of_class(self, value: type) -> str:
        return f"<class {_name_of_class(value)}>"

    def of_function(self, value: types.FunctionType) -> str:
        return f"<function {value.__qualname__}>"


def _head(values: Iterable[Any], count: int) -> list[Any]:
    """The first `count` values, copied at once, because a set may change while it is shown."""
    head = []
    for value in values:
        head.append(value)
        if len(head) > count:
            break
    return head


def _own(kind: type, name: str) -> Any:
    """Read an attribute of a class without calling its metaclass."""
    for base in _mro_of(kind):
        found = type.__dict__["__dict__"].__get__(base).get(name)
        if found is not None:
            return found
    return None


def _by_its_own(kind: type) -> Callable[[_Shown, Any], str]:
    show: Callable[[Any], str] = kind.__repr__  # type: ignore[assignment]
    return lambda shown, value: show(value)


_SHOWN_BY: dict[type, Callable[[_Shown, Any], str]] = {
    str: _Shown.of_text,
    bytes: _Shown.of_bytes,
    bytearray: _Shown.of_bytearray,
    memoryview: _Shown.of_memory,
    int: _Shown.of_int,
    tuple: _Shown.of_tuple,
    list: _Shown.of_list,
    dict: _Shown.of_dict,
    set: _Shown.of_set,
    frozenset: _Shown.of_frozenset,
    type: _Shown.of_class,
    types.FunctionType: _Shown.of_function,
}
"""How to show builtin types and classes derived from them: by the base class, never by users' code."""
_SHOWN_BY |= {
    kind: _by_its_own(kind)
    for kind in (
        bool, float, complex, type(None), decimal.Decimal, fractions.Fraction, uuid.UUID, datetime.date,
        datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone, pathlib.PurePath,
    )
}
