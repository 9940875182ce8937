"""What a bolt has declared of its windows, as its store keeps it beside the open ones, and in words.

Pure. Thread: any.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from squall.engine.clock import NS_PER_SEC
from squall.engine.plural import plural
from squall.engine.state.windows import COUNT, SESSION, Windowing

WINDOWS = "windows"
"""The name of it in a store."""
_UNITS = ((86_400 * NS_PER_SEC, "d"), (3_600 * NS_PER_SEC, "h"), (60 * NS_PER_SEC, "min"))


class Declaration(NamedTuple):
    """All that open windows depend on. Lengths are in nanoseconds, by count in tuples."""

    kind: str
    length: int
    slide: int
    timestamp_field: str | None
    key: tuple[str, ...]
    keeps_tuples: bool

    @classmethod
    def of(cls, windowing: Windowing, folds: bool) -> Declaration:
        """What a bolt has declared, which `folds` or not."""
        its = windowing
        return cls(its.kind, its.length, its.slide, its.timestamp_field, its.key, not folds)

    @classmethod
    def unpacked(cls, packed: str) -> Declaration:
        """Reverse `packed`."""
        return cls(*ast.literal_eval(packed))

    @property
    def packed(self) -> str:
        return repr(tuple(self))

    def words(self) -> list[str]:
        """Say it: the windows, their time, their key, and what is kept."""
        size = f"session gap {self._length(self.length)}"
        if self.kind != SESSION:
            size = f"windows of {self._length(self.length)}"
            if self.slide != self.length:
                size += f" each {self._length(self.slide)}"
        time = "" if self.timestamp_field is None else f"timestamp field {self.timestamp_field!r}"
        key = f"key {', '.join(self.key)}" if self.key else "no key"
        return [size, time or "no timestamp field", key, "all tuples" if self.keeps_tuples else "a fold"]

    def _length(self, length: int) -> str:
        if self.kind == COUNT:
            return plural(length, "tuple")
        for unit, name in _UNITS:
            if length % unit == 0:
                return f"{length // unit} {name}"
        return f"{length / NS_PER_SEC:g} s"


def changed(component: str, now: Declaration, before: Declaration, count: int) -> str:
    """Say that so many open windows of a component were declared otherwise than now."""
    pairs = [(new, old) for new, old in zip(now.words(), before.words(), strict=True) if new != old]
    news, olds = (", ".join(words) for words in zip(*pairs, strict=True))
    opened = f"{plural(count, 'open window')} {'was' if count == 1 else 'were'}"
    return (
        f"{component} is declared with {news}; {opened} declared with {olds}: keep that until they have ended, or drop "
        "them (--drop-windows)"
    )
