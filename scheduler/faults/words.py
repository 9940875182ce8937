"""Splits a line of the plan language into words, and reads and writes names.

Guarantees: `name_of(name_text(name)) == name` for every name, and `name_text(name)` is one word with no other meaning.
"""

from __future__ import annotations

import re

from squall.engine.errors import UsageError

ARROWS = ("->", "<->")
MAX_CHARS = 4000
"""Length of a line: no one writes a longer one by hand."""
RESERVED = frozenset(
    {
        "after", "all", "at", "component", "every", "for", "forking", "forking-parent", "in", "nimbus",
        "node", "of", "on", "parent", "probability", "random", "seed", "supervisor", "task", "times", "with",
        "worker",
    }
)  # fmt: skip
"""Words that have a meaning in place of a name."""

_WORD = re.compile(r"""\s*(?:(<->|->|,)|((?:"(?:[^"\\]|\\.)*"|(?!<?->)[^\s",])+))""", re.DOTALL)
_PLAIN = re.compile(r"[\w.:/@+-]+")
_NAME = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|([^"\[\]=]+))(?:\[([0-9]{1,9})\])?""", re.DOTALL)


def words_of(text: str) -> list[str]:
    """The words of a line, with their quotes. UsageError for a quote that is not closed."""
    if len(text) > MAX_CHARS:
        raise UsageError(f"{text[:40]!r}... has {len(text)} characters; allowed: at most {MAX_CHARS}")
    words, position, end = [], 0, len(text.rstrip())
    while position < end:
        found = _WORD.match(text, position)
        if found is None:
            raise UsageError(f'a quote is not closed: {text[position:].strip()[:80]!r}; write "name" or "na\\"me"')
        words.append(found[1] or found[2])
        position = found.end()
    return words


def name_text(name: str) -> str:
    """Write a name as a word."""
    if _PLAIN.fullmatch(name) and "->" not in name and name not in RESERVED:
        return name
    return quoted(name)


def quoted(text: str) -> str:
    """Write any text as one word."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def name_of(word: str) -> tuple[str, int | None]:
    """Read a name, and the number in brackets behind it. UsageError if the word is not a name."""
    found = _NAME.fullmatch(word)
    if found is None or word in (",", *ARROWS):
        raise UsageError(f"{word[:80]!r} is no name; write it in double quotes if it is one")
    text, bare, index = found.groups()
    name = bare if text is None else unescaped(text)
    if not name:
        raise UsageError("a name is empty")
    return name, None if index is None else int(index)


def unescaped(text: str) -> str:
    """Read the text between two quotes."""
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
