"""A fault as requested, and its form in one line: for `squall inject`, `--fault`, plans, and the request to Nimbus.

::

    FAULT [PROBABILITY] [of FRAMES] [in | on] TARGETS... CLAUSES...

    kill worker count[0] at 3s
    kill random worker every 5s, 10 times
    drop 5% of data on node-1 -> node-2 for 10s
    exception in count with probability 0.001 after 10000 acked

Clauses, in any order: `at 3s`, `after 10000 acked`, `every 10s`, `10 times`, `for 3s`, `with probability 0.01` or
`1%`, `seed 7`, NAME=VALUE. Units of time are ms, s, m and h; without one it is seconds, but not behind `after`, which
also counts messages.

Guarantees
    * A Fault is plain data that never changes; all its values are texts and numbers. Whether the kind exists and takes
      these targets and parameters is not checked here (see `scheduler.faults.resolution.check`).
    * `parse(text_of(fault)) == fault` for every fault whose targets were read. The error for a line that is not
      understood names the wrong word.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, TypeAlias

import msgspec

from squall.engine.errors import UsageError
from squall.engine.foreign.text import plain
from squall.scheduler.common.duration import parse_duration_secs
from squall.scheduler.faults.target import quoted, read_target, words_of

Value: TypeAlias = int | float | str


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a fault plan."""

    kind: str
    """A name of the catalogue: "kill", "partition"."""
    targets: tuple[str, ...] = ()
    """As typed: "node-1:6700", "count", "count[0]", "node-1", "nimbus", "supervisor node-1", "random worker"."""
    at_secs: float = 0.0
    """Seconds after the start of the plan."""
    after_acked: int = 0
    """Messages acked since the start of the plan, in place of a time; 0: by the clock."""
    every_secs: float | None = None
    """Seconds between two occurrences; None: once."""
    times: int | None = None
    """Occurrences in all, with `every_secs`; None: until the plan ends."""
    for_secs: float | None = None
    """Seconds that it lasts; None: the catalogue's time, or a fault that is over at once."""
    probability: float | None = None
    """Of each single tuple or frame; None if the fault is not drawn."""
    params: dict[str, str] = {}
    """As typed; the catalogue says what they mean."""
    seed: int | None = None
    """Seed of this fault's draws; None: derived from the plan's."""


def shown(value: str) -> str:
    """A text of a user, for a message: short, and on one line."""
    text = plain(repr(value))
    return text if len(text) <= 80 else f"{text[:80]}..."


_CLAUSES = ("with", "probability", "seed", "of", "every", "for", "at", "after", "in", "on")
_KIND = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_PARAM = re.compile(r"([A-Za-z_][\w-]*)=(.*)", re.DOTALL | re.ASCII)
_COUNT = re.compile(r"[0-9]{1,15}", re.ASCII)
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?", re.ASCII)


def parse(line: str) -> Fault:
    """Read a fault from a line. UsageError names the mistake."""
    try:
        return _Reader(words_of(line)).fault()
    except UsageError as error:
        raise UsageError(f"{line[:200]!r}: {error}") from None


class _Reader:
    """Takes one word after the other."""

    def __init__(self, words: deque[str]) -> None:
        self._words = words
        self._given: dict[str, Any] = {}
        self._params: dict[str, str] = {}
        self._targets: list[str] = []

    def fault(self) -> Fault:
        kind = self._words.popleft() if self._words else ""
        if not _KIND.fullmatch(kind):
            raise UsageError(f"it begins with {kind[:80]!r}, which is no fault" if kind else "it is empty")
        while self._words:
            if not self._value() and not self._clause():
                self._targets.append(str(read_target(self._words)))
        if {"at_secs", "after_acked"} <= self._given.keys():
            raise UsageError("it begins at a time or after a number of acked messages, not both")
        return Fault(kind, tuple(self._targets), params=self._params, **self._given)

    def _value(self) -> bool:
        """Take what is known by its form; False if it is not next."""
        word = self._words[0]
        if len(self._words) > 1 and self._words[1] == "times":
            self._put(self._given, "times", _count(self._words.popleft()))
            self._words.popleft()
        elif word.endswith("%") and _NUMBER.fullmatch(word[:-1]):
            self._put(self._given, "probability", chance_of(self._words.popleft()))
        elif param := _PARAM.fullmatch(word):
            self._words.popleft()
            self._put(self._params, param[1], param[2])
        else:
            return False
        return True

    def _clause(self) -> bool:
        """Take what begins with a word of its own; False if it is not next."""
        word = self._words[0]
        if word not in _CLAUSES or (word in ("in", "on") and self._targets):
            return False
        self._words.popleft()
        match word:
            case "with":
                if not self._words or (self._words[0] != "probability" and not _PARAM.fullmatch(self._words[0])):
                    raise UsageError("after `with` comes probability or NAME=VALUE")
            case "probability":
                self._put(self._given, word, chance_of(self._next("a probability")))
            case "seed":
                self._put(self._given, word, _count(self._next("a seed"), least=0))
            case "of":
                self._put(self._params, "frames", self._next("a kind of frames"))
            case "every" | "for":
                self._put(self._given, f"{word}_secs", parse_duration_secs(self._next(f"a time after `{word}`")))
            case "at" | "after":
                self._begin(word, self._next(f"a time after `{word}`"))
        return True

    def _begin(self, clause: str, when: str) -> None:
        if clause == "after" and self._words and self._words[0] == "acked":
            self._words.popleft()
            self._put(self._given, "after_acked", _count(when))
        elif clause == "after" and _NUMBER.fullmatch(when):
            raise UsageError(f"time {when[:80]!r} after `after` has no unit; allowed: {when}s, {when} acked")
        else:
            self._put(self._given, "at_secs", 0.0 if when in ("0", "0s") else parse_duration_secs(when))

    def _next(self, what: str) -> str:
        if not self._words:
            raise UsageError(f"{what} is missing at the end")
        return self._words.popleft()

    def _put(self, into: dict[str, Any], name: str, value: object) -> None:
        if name in into:
            raise UsageError(f"{name} is given twice")
        into[name] = value


def _count(word: str, least: int = 1) -> int:
    number = word.replace("_", "")
    if not _COUNT.fullmatch(number) or int(number) < least:
        raise UsageError(f"{word[:80]!r} is not understood; allowed: an integer from {least} up")
    return int(number)


def chance_of(word: str) -> float:
    """Read a probability such as "0.05" or "5%". UsageError if it is not one."""
    number = word.removesuffix("%")
    whole = 1 if number == word else 100
    if not _NUMBER.fullmatch(number) or not 0 <= float(number) <= whole:
        raise UsageError(f"probability is {word[:80]!r}; allowed: 0 to 1, or 0% to 100%")
    return float(number) / whole


def text_of(fault: Fault) -> str:
    """Write a fault as a line."""
    clauses: list[tuple[str, object]] = [
        ("after {} acked", fault.after_acked or None), ("at {}s", fault.at_secs or None), ("for {}s", fault.for_secs),
        ("every {}s", fault.every_secs), ("{} times", fault.times), ("with probability {}", fault.probability),
        ("seed {}", fault.seed),
    ]  # fmt: skip
    parts = [fault.kind, ", ".join(fault.targets)]
    parts += [clause.format(_number(value)) for clause, value in clauses if value is not None]
    parts += [f"{name}={quoted(value)}" for name, value in fault.params.items()]
    return " ".join(filter(None, parts))


def _number(value: object) -> str:
    return repr(value).removesuffix(".0")
