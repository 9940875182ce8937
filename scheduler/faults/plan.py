"""A fault plan: faults from a file and from the command line, each with its source.

::

    seed: 7
    for: 60s
    faults:
      - kill worker count[0] at 3s
      - fault: partition
        targets: [node-1, node-2]
        at: 2s
        for: 3s
        every: 10s

A fault is a line (see `scheduler.faults.sentence`), or keys: fault, target or targets, the clauses of a line (at,
after, every, times, for, probability, seed), and its parameters by their names.

Guarantees: every Plan can be carried out; otherwise PlanMistakes names every mistake with its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from squall.engine.errors import UsageError
from squall.engine.foreign.yaml_nodes import LineError, Mapping, Node, Scalar, Sequence, read_bytes, read_nodes
from squall.scheduler.faults.check import mistakes_of
from squall.scheduler.faults.fault import Fault, Value, shown
from squall.scheduler.faults.sentence import clause_of, parse, value_of
from squall.scheduler.faults.target import parse_targets
from squall.scheduler.faults.view import View
from squall.scheduler.faults.words import words_of

DEFAULT_SEED = 0
_CLAUSES = ("at", "after", "every", "times", "for", "probability", "seed")
_FAULT_KEYS = ("fault", "target", "targets", *_CLAUSES)
_PLAN_KEYS = ("faults", "seed", "for")


class PlanMistakes(UsageError):
    """The mistakes in a plan, one line each."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(self.mistakes))

    def __reduce__(self) -> tuple[type[PlanMistakes], tuple[tuple[str, ...]]]:
        return type(self), (self.mistakes,)


@dataclass(frozen=True, slots=True)
class Plan:
    """Faults that can be carried out."""

    faults: tuple[Fault, ...]
    seed: int = DEFAULT_SEED
    for_secs: float | None = None
    """Seconds after which it ends, even if faults are still to come; None: it ends with its last fault."""


class Where(NamedTuple):
    """The place where a fault was written."""

    source: str
    line: int = 0
    """0: the command line has none."""

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(slots=True)
class Draft:
    """The faults read so far, with their mistakes."""

    found: list[tuple[Where, Fault | str]] = field(default_factory=list)
    """Faults and mistakes, as they stand there."""
    seed: int = DEFAULT_SEED
    for_secs: float | None = None
    _given_in: dict[str, str] = field(default_factory=dict)
    """Of `seed` and `for`: the plan that sets it."""

    def add_line(self, line: str, source: str) -> None:
        """Add a fault of the command line."""
        try:
            self.found.append((Where(source), parse(line)))
        except UsageError as error:
            self.found.append((Where(source), str(error)))

    def add_file(self, path: Path) -> None:
        """Add all faults of a file."""
        try:
            self._add_nodes(read_nodes(read_bytes(path), "plan"), str(path))
        except UsageError as error:
            line = error.line if isinstance(error, LineError) else 0
            self.found.append((Where(str(path), line), str(error)))

    def checked(self, view: View | None = None, for_secs: float | None = None) -> Plan:
        """The plan; PlanMistakes names all mistakes. `for_secs`: the length of the run that it is for."""
        ends_secs = self.for_secs if for_secs is None else min(for_secs, self.for_secs or for_secs)
        mistakes: list[tuple[Where, str]] = []
        for where, found in self.found:
            several = mistakes_of(found, view, has_end=ends_secs is not None) if isinstance(found, Fault) else [found]
            mistakes += [(where, mistake) for mistake in several]
        if mistakes:
            mistakes.sort(key=lambda mistake: mistake[0].line)
            raise PlanMistakes(f"{where}: {text}" for where, text in mistakes)
        return Plan(tuple(fault for _, fault in self.found if isinstance(fault, Fault)), self.seed, ends_secs)

    def _add_nodes(self, node: Node | None, path: str) -> None:
        if not isinstance(node, Mapping):
            line = 1 if node is None else node.line
            raise LineError(line, f"a plan has the keys {', '.join(_PLAN_KEYS)}; this one has none")
        self._note(path, _unknown(node, _PLAN_KEYS))
        for key in ("seed", "for"):
            if key in node.entries:
                line, value = node.entries[key]
                if (other := self._given_in.setdefault(key, path)) != path:
                    self._note(path, [(line, f"{key} is given by {other} too; a run has one")])
                try:
                    given = clause_of(key, _text(value, key))
                    self.seed, self.for_secs = given.get("seed", self.seed), given.get("for_secs", self.for_secs)
                except UsageError as error:
                    self._note(path, [(line, str(error))])
        line, faults = node.entries.get("faults", (node.line, None))
        if not isinstance(faults, Sequence) or not faults.items:
            self._note(path, [(line, "a plan has a list of faults: one or more, each behind a dash")])
            return
        for item in faults.items:
            self._add_fault(item, path)

    def _add_fault(self, node: Node, path: str) -> None:
        try:
            match node:
                case Scalar(line, text):
                    fault = parse(text)
                case Mapping(line):
                    fault, mistakes = _fault_of(node)
                    self._note(path, mistakes)
                    if not fault.kind:
                        return
                case _:
                    raise LineError(node.line, "a fault is a line, or keys; this is a list")
        except UsageError as error:
            self._note(path, [(node.line, str(error))])
        else:
            self.found.append((Where(path, line), fault))

    def _note(self, path: str, mistakes: Iterable[tuple[int, str]]) -> None:
        self.found += [(Where(path, line), mistake) for line, mistake in mistakes]


def _unknown(node: Mapping, known: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    for key, (line, _) in node.entries.items():
        if key not in known:
            yield line, f"key {shown(key)} is unknown; keys are {', '.join(known)}"


def _text(node: Node, key: str) -> str:
    if not isinstance(node, Scalar):
        raise UsageError(f"{key} is a list or has keys; allowed: text or a number")
    return node.text


def _fault_of(node: Mapping) -> tuple[Fault, list[tuple[int, str]]]:
    """A fault written as keys, and its mistakes. If there are any, the fault lacks its clauses, which may belong
    together."""
    mistakes: list[tuple[int, str]] = []
    given: dict[str, Any] = {}
    params: dict[str, Value] = {}
    targets: list[str] = []
    kind = ""
    for key, (line, value) in node.entries.items():
        try:
            if key == "fault":
                kind = _text(value, key)
            elif key in ("target", "targets"):
                targets += _targets_of(value, key)
            elif key in _CLAUSES:
                given = _joined(given, clause_of(key, _text(value, key)))
            else:
                text = _text(value, key)
                params[key] = text if isinstance(value, Scalar) and value.is_quoted else value_of(text)
        except UsageError as error:
            mistakes.append((line, str(error)))
    if "fault" not in node.entries:
        mistakes.append((node.line, f"key fault is missing; keys are {', '.join(_FAULT_KEYS)}, and parameters"))
    return Fault(kind=kind, targets=tuple(targets), params=params, **({} if mistakes else given)), mistakes


def _joined(given: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    if twice := given.keys() & more.keys():
        raise UsageError(f"{', '.join(twice)} is given twice")
    return {**given, **more}


def _targets_of(node: Node, key: str) -> list[str]:
    items = node.items if isinstance(node, Sequence) else (node,)
    return [str(target) for item in items for target in parse_targets(words_of(_text(item, key)))]
