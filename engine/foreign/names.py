"""The rules for names of components, streams, fields and topologies.

A name is part of file names, log lines, tables and error texts. A name that a terminal or a reader would misread
(control characters, line breaks, direction marks, half surrogates, markup, letters taken apart) is refused at its
declaration.
"""

from __future__ import annotations

import re
import unicodedata

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
