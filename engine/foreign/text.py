"""Turns users' errors, values and types into text, and text into what does no harm in a terminal or a log of lines.
Says what is wrong with a name, and counts in sentences.

Guarantees
    * No function here raises, whatever the object's `__str__`, `__repr__` or metaclass does, `sys.exit` included.
    * The result has at most `limit` characters, which all our encodings can carry. Long builtin values are cut before
      they are turned into text.
    * What `plain` returns has no control character (C0, DEL, C1), no line or paragraph separator, no format character
      (direction marks, zero-width ones, tags), no surrogate and no unassigned code point: each of these is written as
      Python writes it in a string ("\\x1b", "\\u202e"). All people see of others' text goes through it: it may set a
      terminal's title or colours, forge a line, or reverse the direction of text.

Relies on: the caller being watched (`at_hand`) while it asks, as a `__str__` that hangs cannot be ended from here.
"""

from __future__ import annotations

import re
import reprlib
import traceback
import unicodedata

ERROR_CHARACTERS = 500
VALUE_CHARACTERS = 80
"""Most characters of a value shown in an error message."""
TRACEBACK_CHARACTERS = 16_000
_FRAMES = 40
_NO_INPUT = "EOF when reading a line"
"""Message of the error that `input()` raises in a worker, which has no input."""
LIMIT = 10_000
"""Longest text shown, in characters: more than any line that people read."""
_HARMLESS = frozenset({"Zs", "Co"})
"""Categories that Python would escape although they show as blanks or glyphs: other blanks, private use (icons)."""
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
"""Invisible characters of categories that are otherwise visible."""


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

    def repr_int(self, value: int, level: int) -> str:
        bits = value.bit_length()  # Python writes no number of more than 4,300 digits, or of 640 if so set
        return super().repr_int(value, level) if bits < 2_048 else f"<int of {bits:,} bits>"

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
    if name == "_pickle.PicklingError" and text.startswith("Can't pickle <"):
        shown += " (for another process, define it in a module beside the topology's file)"
    return shown


def line_of_error(error: BaseException) -> str:
    """The whole message on one line, for an error of which no more is printed."""
    return " | ".join(filter(None, map(str.strip, message_of(error).splitlines())))


def where_of(error: BaseException | None) -> str:
    """The place in the user's code that raised an error, "(FILE, line N, in FUNCTION)"; "" if it was not there."""
    place = ""
    for frame, line in traceback.walk_tb(None if error is None else error.__traceback__):
        code = frame.f_code
        if not frame.f_globals.get("__name__", "").startswith("squall.") and not _LIBRARY.search(code.co_filename):
            place = f"({code.co_filename}, line {line}, in {code.co_name})"
    return place


_LIBRARY = re.compile(r"/(site-packages|dist-packages|python3\.\d+)/|^<frozen")


def traceback_of(error: BaseException) -> str:
    """The traceback as Python prints it, with causes and members of a group, cut if it is long."""
    try:
        text = "".join(traceback.format_exception(error, limit=-_FRAMES))
    except BaseException:  # users' code
        text = text_of_error(error)
    text = _plain(text, len(text))
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


def plain(text: object, limit: int = LIMIT, *, keep: str = "") -> str:
    """Write `str(text)` on one line. `keep` holds characters to leave as they are, such as tabs in a log."""
    full = str(text)
    shown = full[:limit]
    if not shown.isprintable() or not _UNSEEN.isdisjoint(shown):
        shown = "".join(mark if mark in keep else _written(mark) for mark in shown)[:limit]
    left_out = len(full) - limit
    return shown if left_out <= 0 else f"{shown}... ({left_out} more characters)"


def plain_lines(text: str, limit: int = LIMIT) -> str:
    """Make each line plain, but keep line feeds and tabs: for texts such as a traceback."""
    return "\n".join(plain(line, limit, keep="\t") for line in text.split("\n"))


def _written(mark: str) -> str:
    if mark in _UNSEEN:
        return f"\\u{ord(mark):04x}"
    if mark.isprintable() or unicodedata.category(mark) in _HARMLESS:
        return mark
    return repr(mark)[1:-1]


# ---- names of components, streams, fields and topologies ----

# A name is part of file names, log lines, tables and error texts. One that a terminal or a reader would misread
# (control characters, line breaks, direction marks, half surrogates, markup, letters taken apart) is refused at its
# declaration.
MAX_CHARS, MAX_BYTES = 128, 200
"""Longest name, in characters and in UTF-8 bytes: a component's id is part of file names, which may have 255 bytes."""

_MARKUP = re.compile(r"\[[a-z#/@][^\[\]]*\]")
"""Text that Rich reads as a style, such as "[bold]", but not "lines[1]"."""


def allowed(max_chars: int = MAX_CHARS) -> str:
    """The names that are allowed, for messages."""
    return f"1 to {max_chars} printable characters, {MAX_BYTES} bytes at most, without markup such as [bold]"


def name_mistake(name: object, max_chars: int = MAX_CHARS) -> str | None:
    """The mistake in a name, with the name in a form that is safe to print; None if it is valid."""
    if not isinstance(name, str) or not name:
        return f"must be a non-empty string, not {name!r:.80}"
    if name.isspace():
        return f"is blank: {name!r:.80}; allowed: {allowed(max_chars)}"
    if not name.isprintable():
        # `repr` escapes exactly the characters that are not printable.
        strange = next(character for character in name if not character.isprintable())
        return f"{name!r:.80} holds {strange!r}; allowed: {allowed(max_chars)}"
    if (usual := unicodedata.normalize("NFC", name)) != name:
        # A Mac writes é as two characters in file names: two topologies of one look.
        return f"{name!a:.80} looks like {usual!a:.80}: write it so; allowed: {allowed(max_chars)}"
    if len(name) > max_chars or len(name.encode()) > MAX_BYTES:
        size = f"{len(name)} characters and {len(name.encode())} bytes"
        return f"{name[:40]!r}... has {size}; allowed: {allowed(max_chars)}"
    if found := _MARKUP.search(name):
        return f"{name!r:.80} holds {found[0]!r}, which would be printed as a style; allowed: {allowed(max_chars)}"
    return None


def plural(count: int, noun: str, nouns: str = "") -> str:
    """"1 dead letter", "1,200 dead letters"; `nouns` where an s does not make it."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def short(number: float) -> str:
    """"1.2 G" for 1,234,567,890; whole below 1,000."""
    power = (len(f"{abs(number):.0f}") - 1) // 3
    return f"{number / 1000**power:.1f} {' kMGTPE'[power]}" if power else f"{number:.0f}"
