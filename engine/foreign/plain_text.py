"""Makes foreign text harmless for a terminal and for a log of lines.

Exception texts, values, ids, paths, names and users' output may hold anything: escape sequences that set a terminal's
title or colours, line breaks that forge a line, marks that reverse the direction of text, invisible characters. All of
it goes through here before people see it.

Guarantees: the result has no control character (C0, DEL, C1), no line or paragraph separator, no format character
(direction marks, zero-width ones, tags), no surrogate and no unassigned code point: each of these is written as Python
writes it in a string ("\\x1b", "\\u202e"). All other text is left as it is. The result has at most `limit` characters,
and says so if it was cut.

Relies on: its callers not reading markup in the result (see `squall.cli.shown.screen`).
"""

from __future__ import annotations

import unicodedata

LIMIT = 10_000
"""Longest text shown, in characters: more than any line that people read."""
_HARMLESS = frozenset({"Zs", "Co"})
"""Categories that Python would escape although they show as blanks or glyphs: other blanks, private use (icons)."""
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
"""Invisible characters of categories that are otherwise visible."""


def plain(text: object, limit: int = LIMIT, *, keep: str = "") -> str:
    """Write `str(text)` on one line. `keep` holds characters to leave as they are, such as tabs in a log."""
    full = str(text)
    shown = full[:limit]
    if not shown.isprintable() or not _UNSEEN.isdisjoint(shown):
        shown = "".join(mark if mark in keep else _plain(mark) for mark in shown)[:limit]
    left_out = len(full) - limit
    return shown if left_out <= 0 else f"{shown}... ({left_out} more characters)"


def plain_lines(text: str, limit: int = LIMIT) -> str:
    """Make each line plain, but keep line feeds and tabs: for texts such as a traceback."""
    return "\n".join(plain(line, limit, keep="\t") for line in text.split("\n"))


def _plain(mark: str) -> str:
    if mark in _UNSEEN:
        return f"\\u{ord(mark):04x}"
    if mark.isprintable() or unicodedata.category(mark) in _HARMLESS:
        return mark
    return repr(mark)[1:-1]
