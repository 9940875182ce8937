"""What components, streams, fields and topologies may be called.

A name is part of file names, log lines, tables and error texts. One that a terminal or a reader would take for
something else (control characters, line breaks, direction marks, half surrogates, markup) is refused where it is
declared.
"""

from __future__ import annotations

import re

MAX_CHARS, MAX_BYTES = 128, 200
"""A component's id is part of file names, which end at 255 bytes."""

_MARKUP = re.compile(r"\[[a-z#/@][^\[\]]*\]")
"""What Rich would take for a style, as in "[bold]"; "lines[1]" it would not."""

ALLOWED = f"1 to {MAX_CHARS} printable characters, {MAX_BYTES} bytes at most, without markup such as [bold]"


def name_mistake(name: object) -> str | None:
    """What is wrong with a name, with the name itself in a form that is safe to print; None if nothing is."""
    if not isinstance(name, str) or not name:
        return f"must be a non-empty string, not {name!r:.80}"
    if name.isspace():
        return f"is blank: {name!r:.80}; allowed are {ALLOWED}"
    if not name.isprintable():
        # `repr` escapes exactly what is not printable.
        strange = next(character for character in name if not character.isprintable())
        return f"{name!r:.80} holds {strange!r}; allowed are {ALLOWED}"
    if len(name) > MAX_CHARS or len(name.encode()) > MAX_BYTES:
        return (
            f"{name[:40]!r}... has {len(name)} characters and {len(name.encode())} bytes; allowed are {ALLOWED}"
        )
    if found := _MARKUP.search(name):
        return f"{name!r:.80} holds {found[0]!r}, which would be printed as a style; allowed are {ALLOWED}"
    return None
