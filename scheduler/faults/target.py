"""The target of a fault, as users write it.

::

    node-1:6700   worker node-1:6700   worker count[0]   worker count      workers
    count         component count                                          components, in all workers that run them
    count[0]      task count[0]                                            tasks, by their place among the component's
    node-1        node node-1                                              nodes
    nimbus   supervisor node-1   forking-parent node-1                     daemons
    random worker   random worker of count   random worker of node-1      one that is drawn: also node, task, component,
                                                                          supervisor, forking-parent
    all workers                                                            also nodes, supervisors, ...
    A -> B   A <-> B                                                       links, one way and both ways

Guarantees: `parse_target(str(target)) == target`. The meaning of a bare name (worker, node, component) depends on the
cluster, unless `worker`, `node` or `component` stands before it. With several topologies a component is
`topology/component`. A name that is not a plain word is written in double quotes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from squall.engine.errors import UsageError
from squall.scheduler.faults.words import ARROWS, RESERVED, name_of, name_text, words_of


class Sort(StrEnum):
    """The sort of thing that a target is."""

    NAME = "name"
    """The worker, node or component of that name."""
    WORKER = "worker"
    COMPONENT = "component"
    TASK = "task"
    NODE = "node"
    NIMBUS = "nimbus"
    SUPERVISOR = "supervisor"
    FORKING_PARENT = "forking-parent"


DAEMONS = (Sort.NIMBUS, Sort.SUPERVISOR, Sort.FORKING_PARENT)
OF_NODES = (Sort.NODE, Sort.SUPERVISOR, Sort.FORKING_PARENT)
NAMED = (Sort.WORKER, Sort.COMPONENT, Sort.TASK, *OF_NODES)
RANDOM, ALL = "random", "all"
_PLURALS = {f"{sort}s": sort for sort in NAMED}


@dataclass(frozen=True, slots=True)
class Target:
    """One worker, component, task, node or daemon, a random one, or all of a sort."""

    sort: Sort
    name: str = ""
    """With RANDOM: the component or node to draw from; empty: draw from all."""
    index: int | None = None
    """Position of a task among its component's, from 0."""
    which: str = ""
    """RANDOM, ALL, or empty: the one of that name."""

    def __str__(self) -> str:
        if self.sort is Sort.NIMBUS:
            return str(self.sort)
        place = "" if self.index is None else f"[{self.index}]"
        name = name_text(self.name) + place if self.name else ""
        if self.which == ALL:
            return f"all {self.sort}s"
        if self.which == RANDOM:
            return f"random {self.sort} of {name}" if name else f"random {self.sort}"
        return name if self.sort in (Sort.NAME, Sort.TASK) else f"{self.sort} {name}"


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """The links from some workers to others."""

    sender: Target
    receiver: Target
    both: bool = False

    def __str__(self) -> str:
        return f"{self.sender} {'<->' if self.both else '->'} {self.receiver}"


AnyTarget: TypeAlias = Target | LinkTarget


def parse_target(text: str) -> AnyTarget:
    """Read one target. UsageError if the text holds none, or more."""
    found = parse_targets(words_of(text))
    if len(found) != 1:
        raise UsageError(f"target {text[:80]!r} is {'no target' if not found else 'more than one target'}")
    return found[0]


def parse_targets(words: Sequence[str]) -> list[AnyTarget]:
    """Read a row of targets, with or without commas between them."""
    reader = _Reader(words)
    found: list[AnyTarget] = []
    while reader.left:
        target = reader.target()
        if reader.left and reader.left[0] in ARROWS:
            both = reader.take() == "<->"
            found.append(LinkTarget(target, reader.target(), both))
        else:
            found.append(target)
        reader.skip(",")
    return found


class _Reader:
    """Takes one word after the other."""

    def __init__(self, words: Sequence[str]) -> None:
        self.left = list(words)

    def take(self) -> str:
        if not self.left:
            raise UsageError("a target is missing at the end")
        return self.left.pop(0)

    def skip(self, word: str) -> bool:
        if self.left and self.left[0] == word:
            self.left.pop(0)
            return True
        return False

    def target(self) -> Target:
        word = self.take()
        if word in (",", *ARROWS):
            raise UsageError(f"a target is missing before {word!r}")
        if word == RANDOM:
            return self._random()
        if word == ALL:
            return self._all()
        if word == "forking" and self.skip("parent"):
            word = Sort.FORKING_PARENT
        if word == Sort.NIMBUS:
            return Target(Sort(word))
        if word in NAMED:
            return _named(Sort(word), *name_of(self.take()))
        if word in RESERVED:
            raise UsageError(f"{word!r} is no target; a thing of that name is written \"{word}\"")
        name, index = name_of(word)
        return Target(Sort.NAME if index is None else Sort.TASK, name, index)

    def _all(self) -> Target:
        plural = self.take()
        if plural not in _PLURALS:
            raise UsageError(f"target 'all {plural[:80]}' is unknown; allowed: all {', '.join(_PLURALS)}")
        return Target(_PLURALS[plural], which=ALL)

    def _random(self) -> Target:
        if len(self.left) > 1 and self.left[:2] == ["forking", "parent"]:
            self.left[:2] = [Sort.FORKING_PARENT]
        sort = Sort(self.take()) if self.left and self.left[0] in NAMED else Sort.WORKER
        name, index = name_of(self.take()) if self.skip("of") or self.skip("on") else ("", None)
        return Target(sort, name, index, RANDOM)


def _named(sort: Sort, name: str, index: int | None) -> Target:
    if sort is Sort.TASK and index is None:
        raise UsageError(f"task {name[:80]!r} has no number; write for example task {name_text(name[:80])}[0]")
    if index is not None and sort not in (Sort.TASK, Sort.WORKER):
        raise UsageError(f"there is no {sort} [{index}] of {name[:80]!r}; a number says which task of a component")
    return Target(sort, name, index)
