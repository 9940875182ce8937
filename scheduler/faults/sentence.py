"""A fault in one line.

::

    FAULT [PROBABILITY] [of FRAMES] [in | on] TARGETS... CLAUSES...

    kill worker count[0] at 3s
    kill random worker every 5s, 10 times
    drop 5% of data on node-1 -> node-2 for 10s
    exception in count with probability 0.001 after 10000 acked

Clauses, in any order: `at 3s`, `after 10000 acked`, `every 10s`, `10 times`, `for 3s`, `with probability 0.01` or `1%`,
`seed 7`, NAME=VALUE. Units of time are ms, s, m and h; without one it is seconds, but not behind `after`, which also
counts messages.

Guarantees: `parse(text_of(fault)) == fault` for every fault whose targets and parameters can be written. The error for
a line that is not understood names the wrong word.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from squall.engine.errors import UsageError
from squall.scheduler.common.duration import UNITS, parse_duration_secs
from squall.scheduler.faults.fault import MAX_NUMBER, AfterAcked, AfterSecs, Fault, Value, When
from squall.scheduler.faults.target import parse_targets
from squall.scheduler.faults.words import RESERVED, quoted, unescaped, words_of

FRAMES = "frames"
"""The parameter that `of data` sets."""

_CLAUSES = ("at", "after", "every", "for", "with", "probability", "seed")
_KIND = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_PARAM = re.compile(r"([A-Za-z_][\w-]*)=(.*)", re.DOTALL | re.ASCII)
_PERCENT = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)%", re.ASCII)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_INTEGER = re.compile(r"[+-]?[0-9]{1,16}", re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?", re.ASCII)
_PLAIN_TEXT = re.compile(r"[^\s\",<>\\]+")
_WORDS: dict[str, Value] = {"true": True, "false": False}


def parse(line: str) -> Fault:
    """Read a fault from a line. UsageError names the mistake."""
    return _Parser(line).fault()


def clause_of(name: str, text: str) -> dict[str, Any]:
    """The fields of a Fault that a clause sets, given as first word (or "times") and rest. UsageError if none."""
    parser = _Parser(text)
    parser.left = words_of(text)
    if name == "times":
        parser._times()
    else:
        _READERS[name](parser)
    if parser.left:
        raise UsageError(f"{name} {text[:80]!r} is not understood from {parser.left[0][:80]!r} on")
    return parser.given


@dataclass(slots=True)
class _Parser:
    line: str
    left: list[str] = field(default_factory=list)
    given: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Value] = field(default_factory=dict)
    target_words: list[str] = field(default_factory=list)

    def fault(self) -> Fault:
        try:
            self.left = words_of(self.line)
            if not self.left:
                raise UsageError("it is empty")
            kind = self.left.pop(0)
            if not _KIND.fullmatch(kind):
                raise UsageError(f"it begins with {kind[:80]!r}, which is no fault")
            while self.left:
                if not self._clause():
                    self.target_words.append(self.left.pop(0))
            while self.target_words and self.target_words[-1] == ",":
                self.target_words.pop()
            targets = tuple(str(target) for target in parse_targets(self.target_words))
        except UsageError as error:
            raise UsageError(f"{self.line[:200]!r} is not understood: {error}") from None
        return Fault(kind=kind, targets=targets, params=self.params, **self.given)

    def _clause(self) -> bool:
        """Take a clause; False if none begins at this word."""
        word, second = self.left[0], self.left[1] if len(self.left) > 1 else ""
        if word == "," and (not self.target_words or self._begins_clause(1)):
            self.left.pop(0)
        elif word in _CLAUSES:
            self.left.pop(0)
            _READERS[word](self)
        elif word in ("in", "on") and not self.target_words:
            self.left.pop(0)
        elif word == "of" and not self.target_words:
            self.left.pop(0)
            self._set_param(FRAMES, self._next("a kind of frames"))
        elif second == "times":
            self._times()
            self.left.pop(0)
        elif _PERCENT.fullmatch(word):
            self._probability()
        elif param := _PARAM.fullmatch(word):
            self.left.pop(0)
            self._set_param(param[1], value_of(param[2]))
        else:
            return False
        return True

    def _begins_clause(self, at: int) -> bool:
        """Whether a clause begins at this word, not a target: commas stand between targets, and before clauses."""
        rest = self.left[at : at + 2]
        if not rest:
            return True
        is_value = _PERCENT.fullmatch(rest[0]) or _PARAM.fullmatch(rest[0])
        return rest[0] in _CLAUSES or rest[1:] == ["times"] or is_value is not None

    def _next(self, what: str) -> str:
        if not self.left:
            raise UsageError(f"{what} is missing at the end")
        return self.left.pop(0)

    def _set(self, name: str, value: object, what: str) -> None:
        if name in self.given:
            raise UsageError(f"{what} is given twice")
        self.given[name] = value

    def _set_param(self, name: str, value: Value) -> None:
        if name in self.params:
            raise UsageError(f"{name} is given twice")
        self.params[name] = value

    # ---- clauses, without their first word ----

    def _times(self) -> None:
        self._set("times", self._count("the number of times"), "the number of times")

    def _at(self) -> None:
        self._set("when", AfterSecs(self._secs("at", zero=True)), "the beginning")

    def _after(self) -> None:
        if len(self.left) > 1 and self.left[1] == "acked":
            when: When = AfterAcked(self._count("the number of acked messages"))
            self.left.pop(0)
        else:
            when = AfterSecs(self._secs("after", zero=True, bare=False))
        self._set("when", when, "the beginning")

    def _every(self) -> None:
        self._set("every_secs", self._secs("every"), "every")

    def _for(self) -> None:
        self._set("for_secs", self._secs("for"), "for")

    def _with(self) -> None:
        if self.left[:1] != ["probability"] and not (self.left and _PARAM.fullmatch(self.left[0])):
            word = self.left[0] if self.left else "nothing"
            raise UsageError(f"after `with` comes probability or NAME=VALUE, not {word[:80]!r}")

    def _probability(self) -> None:
        self._set("probability", chance_of(self._next("a probability")), "the probability")

    def _seed(self) -> None:
        word = self._next("a seed")
        if not re.fullmatch(r"[0-9]{1,20}", word, re.ASCII) or int(word) >= 2**64:
            raise UsageError(f"seed is {word[:80]!r}; allowed: an integer from 0 to 2**64 - 1")
        self._set("seed", int(word), "the seed")

    # ---- values ----

    def _secs(self, clause: str, *, zero: bool = False, bare: bool = True) -> float:
        """`bare`: whether a number without a unit means seconds."""
        word = self._next(f"a time after `{clause}`")
        if _NUMBER.fullmatch(word) and word != "0":
            if self.left and self.left[0].isalpha() and self.left[0] not in RESERVED:
                word += self.left.pop(0)
            elif not bare:
                raise UsageError(f"time {word[:80]!r} after `{clause}` has no unit; allowed: {word}s, {word} acked")
        if zero and re.fullmatch(f"0({'|'.join(UNITS)})?", word):
            return 0.0
        return parse_duration_secs(word)

    def _count(self, what: str) -> int:
        word = self._next(what)
        number = word.replace("_", "")
        if not _INTEGER.fullmatch(number) or not 1 <= int(number) <= MAX_NUMBER:
            raise UsageError(f"{what} is {word[:80]!r}; allowed: an integer from 1 up")
        return int(number)


_READERS: dict[str, Callable[[_Parser], None]] = {
    "at": _Parser._at, "after": _Parser._after, "every": _Parser._every, "for": _Parser._for, "with": _Parser._with,
    "probability": _Parser._probability, "seed": _Parser._seed,
}  # fmt: skip


def chance_of(word: str) -> float:
    """Read a probability such as "0.05" or "5%". UsageError if it is not one."""
    number = word.removesuffix("%")
    if not _NUMBER.fullmatch(number) or not 0 <= float(number) <= (1 if number == word else 100):
        raise UsageError(f"probability is {word[:80]!r}; allowed: 0 to 1, or 0% to 100%")
    return float(number) / (1 if number == word else 100)


def value_of(text: str) -> Value:
    """Read the value of a parameter: a number, true, false, or text, in double quotes or plain."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and abs(float(text)) <= MAX_NUMBER:
        return float(text)
    if found := _QUOTED.fullmatch(text):
        return unescaped(found[1])
    if not _PLAIN_TEXT.fullmatch(text):
        raise UsageError(f"value {text[:80]!r} is not understood; write it in double quotes")
    return text


def text_of(fault: Fault) -> str:
    """Write a fault as a line."""
    parts = [fault.kind, *fault.targets]
    match fault.when:
        case AfterSecs(secs) if secs:
            parts.append(f"at {_number(secs)}s")
        case AfterAcked(tuples):
            parts.append(f"after {tuples} acked")
    if fault.for_secs is not None:
        parts.append(f"for {_number(fault.for_secs)}s")
    if fault.every_secs is not None:
        parts.append(f"every {_number(fault.every_secs)}s")
    if fault.times is not None:
        parts.append(f"{fault.times} times")
    if fault.probability is not None:
        parts.append(f"with probability {_number(fault.probability)}")
    parts += [f"{name}={_value_text(value)}" for name, value in fault.params.items()]
    if fault.seed is not None:
        parts.append(f"seed {fault.seed}")
    return " ".join(parts)


def _number(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _value_text(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        is_plain = _PLAIN_TEXT.fullmatch(value) and "->" not in value and value_of(value) is value
        return value if is_plain else quoted(value)
    return repr(value)
