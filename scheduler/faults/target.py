"""The target of a fault, as users write it.

::

    node-1:6700   worker node-1:6700   worker count[0]   worker count      workers
    count         component count                                          components, in all workers that run them
    count[0]      task count[0]                                            tasks, by their place among the component's
    node-1        node node-1                                              nodes
    nimbus   supervisor node-1   forking-parent node-1                     daemons
    random worker   random worker of count                                 one that is drawn
    A -> B   A <-> B                                                       links, one way and both ways

Guarantees: what `str` writes of a target is read as the same target. The meaning of a bare name (worker, node,
component) depends on the cluster. With several topologies a component is `topology/component`. A name that is not a
plain word is written in quotes; one that has a meaning here, behind `worker`, `node` or `component`.
"""

from __future__ import annotations

import re
import shlex
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from squall.engine.errors import UsageError

ARROWS = ("->", "<->")
MAX_CHARS = 4000
"""Length of a line: no one writes a longer one by hand."""
_PLAIN = re.compile(r"[\w.:/@+%=^\[\]-]+")
_INDEXED = re.compile(r"(.+)\[([0-9]{1,9})\]", re.DOTALL)


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
RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Target:
    """One worker, component, task, node or daemon, or a random worker."""

    sort: Sort
    name: str = ""
    """If it is random: the component or node to draw from; empty: draw from all."""
    index: int | None = None
    """Position of a task among its component's, from 0."""
    is_random: bool = False

    def __str__(self) -> str:
        name = quoted(self.name + ("" if self.index is None else f"[{self.index}]")) if self.name else ""
        if self.is_random:
            return f"random {self.sort} of {name}" if name else f"random {self.sort}"
        if self.sort is Sort.NIMBUS:
            return str(self.sort)
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


def quoted(text: str) -> str:
    """Write any text as one word."""
    # Not shlex.quote: a comma, which parts targets here, means nothing to a shell.
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "'\"'\"'") + "'"


def words_of(text: str) -> deque[str]:
    """The words of a line, without quotes and commas. UsageError for a quote that is not closed."""
    if len(text) > MAX_CHARS:
        raise UsageError(f"{text[:40]!r}... has {len(text)} characters; allowed: at most {MAX_CHARS}")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=",")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return deque(word for word in lexer if word.strip(","))
    except ValueError as error:
        raise UsageError(f"{str(error).lower()}; a name with a quote stands in quotes of the other kind") from None


def parse_target(text: str) -> AnyTarget:
    """Read one target. UsageError if the text holds none, or more."""
    words = words_of(text)
    target = read_target(words)
    if words:
        raise UsageError(f"target {text[:80]!r} is more than one target; a name with blanks stands in quotes")
    return target


def read_target(words: deque[str]) -> AnyTarget:
    """Take the first target of these words."""
    target = _end(words)
    if words and words[0] in ARROWS:
        both = words.popleft() == "<->"
        return LinkTarget(target, _end(words), both)
    return target


def _end(words: deque[str]) -> Target:
    word = _next(words)
    if word in ARROWS:
        raise UsageError(f"a target is missing before {word!r}")
    if word == "-":
        raise UsageError("'-' is no target: the shell took the `>` of an arrow; write 'node-1 -> node-2', in quotes")
    if word == RANDOM:
        if words and words[0] == Sort.WORKER:
            words.popleft()
        if words and words[0] in ("of", "on"):
            words.popleft()
            return Target(Sort.WORKER, *_indexed(_next(words)), is_random=True)
        return Target(Sort.WORKER, is_random=True)
    if word == Sort.NIMBUS:
        return Target(Sort.NIMBUS)
    if word not in set(Sort) - {Sort.NAME}:
        name, index = _indexed(word)
        return Target(Sort.NAME if index is None else Sort.TASK, name, index)
    sort, name = Sort(word), _next(words)
    if sort not in (Sort.TASK, Sort.WORKER):
        return Target(sort, name)
    name, index = _indexed(name)
    if sort is Sort.TASK and index is None:
        raise UsageError(f"task {name[:80]!r} has no number; write for example task {quoted(name[:80] + '[0]')}")
    return Target(sort, name, index)


def _next(words: deque[str]) -> str:
    if not words:
        raise UsageError("a target is missing at the end")
    return words.popleft()


def _indexed(word: str) -> tuple[str, int | None]:
    """A name, and the number in brackets behind it."""
    found = _INDEXED.fullmatch(word)
    return (found[1], int(found[2])) if found else (word, None)
