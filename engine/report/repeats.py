"""Tells equal news at the first, tenth, hundredth ... time, with a count: a wrong line fails each of a million tuples.
Pure. Thread: any, with the lock of the interpreter."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, Protocol, TypeVar

_KNOWN, _COUNTED_NS = 1000, 600_000_000_000
"""Different news that are counted, and the time for which errors are; then counting begins anew."""
T = TypeVar("T")
_PLACE = re.compile(r".* (\(.+, line \d+, in \S+\))", re.DOTALL)

_RAISED = re.compile(r"(?P<component>.+?)\[\d+\] raised (?P<kind>[^:]+?)(?:: .*)? in (?P<where>\w+(?: \(.*\))?)")


class Cause(NamedTuple):
    """What the errors of one wrong line have in common, whatever the task and the tuple that their texts name."""

    component: str
    kind: str
    """Type of the exception; "" if no user's code raised."""
    where: str


def cause_of_error(error: str) -> Cause:
    """Return the cause that the first line of a worker's last words tells."""
    line = error.partition("\n")[0]
    found = _RAISED.fullmatch(line)
    return Cause(line, "", "") if found is None else Cause(*found.groups())


def is_told(count: int) -> bool:
    """Return True for 1, 10, 100 ..."""
    return str(count).strip("0") == "1"


class Repeats:
    """What one process has told."""

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}
        self._since_ns = 0

    def error_line(self, component: str, task: int, text: str, now_ns: int) -> str | None:
        """Return the line that tells of an error; None if it need not be told. Equal are the errors of one type and
        line in a component within ten minutes: a text names the tuple, and differs each time."""
        if now_ns - self._since_ns >= _COUNTED_NS:
            self._counts.clear()
            self._since_ns = now_ns
        place = _PLACE.fullmatch(text)
        key = component, cause_of_failure(text, "" if place is None else place[1])
        return self.line(f"error reported by {component}[{task}]: {text}", key)

    def line(self, text: str, key: Hashable = None) -> str | None:
        """Return the text, with how often it, or what has its key, has come; None if it need not be told again yet."""
        key = text if key is None else key
        if len(self._counts) > _KNOWN:
            self._counts.clear()
        self._counts[key] = count = self._counts.get(key, 0) + 1
        if not is_told(count):
            return None
        return f"{text}{f' ({count:,} times)' if count > 1 else ''}"


def cause_of_failure(error: str, where: str) -> tuple[str, str]:
    """Return what failures by equal errors have in common: type of the error, and line of the user's code."""
    return error.partition(":")[0], where


def together(items: Iterable[T], key_of: Callable[[T], Hashable]) -> list[list[T]]:
    """Put together the items with equal keys, in the order of the last of each."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        key = key_of(item)
        groups[key] = same = groups.pop(key, [])
        same.append(item)
    return list(groups.values())


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


def death_key(death: _Death) -> Hashable:
    """Return what equal deaths have in common: their error's cause, or else the worker."""
    return death.reason, cause_of_error(death.error) if death.error else death.slot


def equal_deaths(deaths: Iterable[D]) -> list[list[D]]:
    """Put together equal deaths of all workers, in the order of the last of each."""
    return together(deaths, death_key)
