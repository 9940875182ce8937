"""Which names of columns Spark takes for one: it compares them in lower case, as Java makes it, in any language.

Not as `str.casefold`, to which "ß" is "ss": to Spark these are two columns.
"""

from __future__ import annotations

from collections.abc import Iterable


def folded(name: str) -> str:
    """The form in which names are one to Spark."""
    return name.lower()


def twins_among(names: Iterable[str]) -> tuple[str, str] | None:
    """The first two names that Spark takes for one."""
    seen: dict[str, str] = {}
    for name in names:
        if folded(name) in seen:
            return seen[folded(name)], name
        seen[folded(name)] = name
    return None


def twins_told(first: str, second: str, where: str = "") -> str:
    return (
        f"the columns {first!r} and {second!r}{where}, which are one to Spark; allowed: names that differ in more than "
        "case"
    )
