"""Tells equal news at the first, second, fourth, eighth ... time, with a count: a wrong line fails each of a million
tuples. Pure. Thread: any, with the lock of the interpreter."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol, TypeVar

_KNOWN = 1000
"""Different news that are counted; then counting begins anew."""


class Repeats:
    """What one process has told."""

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}

    def line(self, text: str, *key: Hashable) -> str | None:
        """Return the text, with how often it has come; None if it need not be told again yet. What has the same key is
        equal; without a key, what has the same text."""
        if len(self._counts) > _KNOWN:
            self._counts.clear()
        self._counts[key or text] = count = self._counts.get(key or text, 0) + 1
        if count & (count - 1):
            return None
        return f"{text}{f' ({count:,} times)' if count > 1 else ''}"


class _Death(Protocol):
    """The end of a worker."""

    @property
    def slot(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def error(self) -> str:
        """Its first line tells it from others."""


D = TypeVar("D", bound=_Death)


def equal_deaths(deaths: Iterable[D]) -> list[list[D]]:
    """Put together the deaths of one worker for one reason, in the order of the last of each."""
    equal: dict[Hashable, list[D]] = {}
    for death in deaths:
        key = death.slot, death.reason, death.error.partition("\n")[0]
        equal[key] = [*equal.pop(key, []), death]
    return list(equal.values())
