"""Turns users' errors, values and types into text.

Guarantees
    * No function here raises, whatever the object's `__str__`, `__repr__` or metaclass does, `sys.exit` included.
    * The result has at most `limit` characters, which all our encodings can carry. Long builtin values are cut before
      they are turned into text.

Relies on: the caller being watched (`at_hand`) while it asks, as a `__str__` that hangs cannot be ended from here.
"""

from __future__ import annotations

import reprlib
import traceback
from collections.abc import Iterator

ERROR_CHARACTERS = 500
VALUE_CHARACTERS = 80
"""Most characters of a value shown in an error message."""
TRACEBACK_CHARACTERS = 16_000
_FRAMES = 40
_CHAIN = 8
"""Most errors shown of a chain of causes, and of a group."""
_NO_INPUT = "EOF when reading a line"
"""Message of the error that `input()` raises in a worker, which has no input."""


def type_name(value: object) -> str:
    """The name of the value's class, with its module unless that is a builtin's."""
    try:
        kind = type(value)
        return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    except BaseException:  # a metaclass can break the name; say so
        return "object"


class _Shown(reprlib.Repr):
    """Python's own text of builtin values, cut where they are long; others show themselves."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = limit
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = 12

    def repr_bytes(self, value: bytes, level: int) -> str:
        shown = repr(value[: self.maxother])
        return shown if len(value) <= self.maxother else f"{shown}..."

    repr_bytearray = repr_bytes

    def repr_instance(self, value: object, level: int) -> str:
        unshown = f"<{type_name(value)} object>"
        try:
            return unshown if type(value).__repr__ == object.__repr__ else repr(value)
        except BaseException:  # users' code
            return unshown


def repr_of(value: object, limit: int = VALUE_CHARACTERS) -> str:
    """Describe a value for a person, in at most `limit` characters."""
    try:
        return _plain(_Shown(limit).repr(value), limit)
    except BaseException:  # the caller is reporting another error, which must not be lost
        return _plain(f"<{type_name(value)} object>", limit)


def message_of(error: BaseException, limit: int = ERROR_CHARACTERS) -> str:
    """The error's message: its `str`, if that works."""
    try:
        if type(error).__str__ is BaseException.__str__:
            # As `str` does, but without turning long arguments into text as a whole.
            args = error.args
            if len(args) != 1:
                return repr_of(args, limit) if args else ""
            return _plain(args[0], limit) if isinstance_of(args[0], str) else repr_of(args[0], limit)
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


def _traceback(error: BaseException, seen: set[int]) -> Iterator[str]:
    """As `traceback.format_exception`, which would turn all of a long argument into text."""
    seen.add(id(error))
    before, says = error.__cause__, "The above exception was the direct cause of the following exception"
    if before is None and not error.__suppress_context__:
        before, says = error.__context__, "During handling of the above exception, another exception occurred"
    if before is not None and id(before) not in seen and len(seen) < _CHAIN:
        yield from _traceback(before, seen)
        yield f"\n{says}:\n\n"
    frames = traceback.format_tb(error.__traceback__, -_FRAMES)
    if frames:
        yield "Traceback (most recent call last):\n"
        yield from frames
    yield f"{type_name(error)}: {message_of(error, TRACEBACK_CHARACTERS)}".removesuffix(": ") + "\n"
    if isinstance_of(error, BaseExceptionGroup):
        for inner in error.exceptions[:_CHAIN]:  # type: ignore[attr-defined]
            if id(inner) not in seen and len(seen) < _CHAIN:
                yield "  +---------------- in the group:\n"
                yield from ("  | " + line for text in _traceback(inner, seen) for line in text.splitlines(True))


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
