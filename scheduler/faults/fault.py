"""A fault as requested: its kind, targets, time, repetitions and duration.

Guarantees: a Fault is plain data that never changes. `from_json(to_json(fault)) == fault`, and `from_json` takes
nothing else: one UsageError names every mistake of a document. Whether the kind exists and takes these targets and
parameters is not checked here (see `scheduler.faults.check`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeGuard

from squall.engine.errors import UsageError
from squall.engine.foreign.plain_text import plain
from squall.scheduler.common.duration import MAX_SECS

Value: TypeAlias = int | float | str | bool

MAX_NUMBER = 10**15
"""Largest count or parameter: more than anyone needs, and still exact as a float."""


@dataclass(frozen=True, slots=True)
class AfterSecs:
    """`secs` seconds after the start of the plan."""

    secs: float


@dataclass(frozen=True, slots=True)
class AfterAcked:
    """When `tuples` messages have been acked since the start of the plan."""

    tuples: int


When: TypeAlias = AfterSecs | AfterAcked

AT_ONCE = AfterSecs(0.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """One line of a fault plan."""

    kind: str
    """A name of the catalogue: "kill", "partition"."""
    targets: tuple[str, ...] = ()
    """As typed: "node-1:6700", "count", "count[0]", "node-1", "nimbus", "supervisor node-1", "random worker"."""
    when: When = AT_ONCE
    every_secs: float | None = None
    """Seconds between two occurrences; None: once."""
    times: int | None = None
    """Occurrences in all, with `every_secs`; None: until the plan ends."""
    for_secs: float | None = None
    """Seconds that it lasts; None: the catalogue's time, or a fault that is over at once."""
    probability: float | None = None
    """Of each single tuple or frame; None if the fault is not drawn."""
    params: Mapping[str, Value] = field(default_factory=dict, hash=False)
    seed: int | None = None
    """Seed of this fault's draws; None: derived from the plan's."""

    def to_json(self) -> dict[str, Any]:
        """The fault as JSON values for `json.dumps`, without defaults."""
        document: dict[str, Any] = {"kind": self.kind}
        if self.targets:
            document["targets"] = list(self.targets)
        if self.when != AT_ONCE:
            document["when"] = _when_to_json(self.when)
        for name in ("every_secs", "times", "for_secs", "probability", "seed"):
            if (value := getattr(self, name)) is not None:
                document[name] = value
        if self.params:
            document["params"] = dict(self.params)
        return document

    @classmethod
    def from_json(cls, document: object) -> Fault:
        """The fault that `to_json` wrote. UsageError lists every mistake."""
        if not isinstance(document, dict):
            raise UsageError(f"a fault is an object with a kind, not {shown(document)}")
        mistakes = []
        if unknown := [shown(key) for key in document if key not in _READERS]:
            mistakes.append(f"no such key as {', '.join(unknown)} (keys are {', '.join(_READERS)})")
        if "kind" not in document:
            mistakes.append("no kind")
        given: dict[str, Any] = {}
        for key, read in _READERS.items():
            if key in document:
                try:
                    given[key] = read(document[key])
                except ValueError as error:
                    mistakes.append(f"{key} is {shown(document[key])}; allowed: {error}")
        if mistakes:
            raise UsageError(f"fault {shown(document.get('kind', '?'))}: {'; '.join(mistakes)}")
        return cls(**given)


def _when_to_json(when: When) -> dict[str, Value]:
    match when:
        case AfterSecs(secs):
            return {"after_secs": secs}
        case AfterAcked(tuples):
            return {"after_acked": tuples}


def _read_when(value: object) -> When:
    match value:
        case {"after_secs": secs, **rest} if not rest:
            return AfterSecs(_secs(secs))
        case {"after_acked": tuples, **rest} if not rest:
            return AfterAcked(_count(tuples))
    raise ValueError('{"after_secs": N} or {"after_acked": N}')


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("text")
    return value


def _targets(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("a list of targets")
    return tuple(_text(target) for target in value)


def is_number(value: object) -> TypeGuard[float]:
    """Whether this is an int or a float of reasonable size; True and NaN are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -MAX_NUMBER <= value <= MAX_NUMBER


def _secs(value: object) -> float:
    if not is_number(value) or not 0 <= value <= MAX_SECS:
        raise ValueError(f"a number of seconds from 0 to {MAX_SECS:.0f}")
    return float(value)


def _more_than_no_secs(value: object) -> float:
    if not is_number(value) or not 0 < value <= MAX_SECS:
        raise ValueError(f"a number of seconds above 0, at most {MAX_SECS:.0f}")
    return float(value)


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_NUMBER:
        raise ValueError("an integer from 1 up")
    return value


def _probability(value: object) -> float:
    if not is_number(value) or not 0 <= value <= 1:
        raise ValueError("a number from 0 to 1")
    return float(value)


def _seed(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
        raise ValueError("an integer from 0 to 2**64 - 1")
    return value


def _params(value: object) -> dict[str, Value]:
    if not isinstance(value, Mapping):
        raise ValueError("an object of parameters")
    for name, given in value.items():
        if not isinstance(name, str) or not (isinstance(given, str | bool) or is_number(given)):
            raise ValueError("names with a number, a text, true or false each")
    return dict(value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "kind": _text,
    "targets": _targets,
    "when": _read_when,
    "every_secs": _more_than_no_secs,
    "times": _count,
    "for_secs": _more_than_no_secs,
    "probability": _probability,
    "params": _params,
    "seed": _seed,
}


def shown(value: object) -> str:
    """The text of a value from an untrusted document: short, and on one line."""
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        return "a number beyond all measure" # Python writes no integer of more than 4,300 digits.
    text = plain(repr(value))
    return text if len(text) <= 80 else f"{text[:80]}..."
