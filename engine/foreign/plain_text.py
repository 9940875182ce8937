"""Text that is not ours, made harmless for a terminal and for a log of lines.

Exception texts, values, ids, paths, names and what users print may hold anything: escape sequences that set a
terminal's title or colours, line breaks that forge a line, marks that turn the direction of what follows, characters
that are not seen. All of it goes through here before it is shown to people.

Guarantees: what comes out has no control character (C0, DEL, C1), no line or paragraph separator, no format character
(direction marks, zero-width ones, tags), no surrogate and no unassigned code point: each of these is written as Python
writes it in a string ("\\x1b", "\\u202e"). All other text is left as it is. What comes out has at most `limit`
characters, and says so if that is less than there was.

Relies on: whoever shows the result not reading markup in it (see `squall.cli.plain_console`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

LIMIT = 10_000
"""Characters: more than a line that is meant to be read."""
_HARMLESS = frozenset({"Zs", "Co"})
"""Categories that Python would escape, and that show as blanks or glyphs: other blanks, private use (icons)."""
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
"""Those that nobody sees, of categories that are seen."""


def plain(text: object, limit: int = LIMIT, *, keep: str = "") -> str:
    """`str(text)` on one line. `keep` names what is left as it is in spite of all, such as tabs in a log."""
    full = str(text)
    shown = full[:limit]
    if not shown.isprintable() or not _UNSEEN.isdisjoint(shown):
        shown = "".join(mark if mark in keep else _plain(mark) for mark in shown)[:limit]
    left_out = len(full) - limit
    return shown if left_out <= 0 else f"{shown}... ({left_out} more characters)"


def plain_lines(text: str, limit: int = LIMIT) -> str:
    """Text whose line feeds and tabs are meant, such as a traceback: each line as by `plain`."""
    return "\n".join(plain(line, limit, keep="\t") for line in text.split("\n"))


def plain_values(document: Any) -> Any:
    """A document, as it would go into JSON, with every text in it made plain, keys too."""
    if isinstance(document, str):
        return plain(document)
    if isinstance(document, Mapping):
        return {plain_values(key): plain_values(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [plain_values(value) for value in document]
    return document


def _plain(mark: str) -> str:
    if mark in _UNSEEN:
        return f"\\u{ord(mark):04x}"
    if mark.isprintable() or unicodedata.category(mark) in _HARMLESS:
        return mark
    return repr(mark)[1:-1]
