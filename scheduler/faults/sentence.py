"""The sentence that says a fault: for `squall inject`, `--fault`, plans, and the request to Nimbus.

::

    FAULT [CLAUSES...] [in | on] TARGETS... [CLAUSES...]

    kill worker count[0] at 3s
    kill random worker every 5s, 10 times
    drop 5% of data on node-1 -> node-2 for 10s
    exception in count with probability 0.001 after 10000 acked

CLAUSES and TARGETS list the forms of all that may follow the fault's name: a word in capitals stands for a value, and
the first form that fits is taken. Units of time are ms, s, m and h; without one it is seconds, but not behind `after`,
which also counts messages. A name that is not a plain word is written in quotes; one that has a meaning here, behind
`worker`, `node` or `component`.

Guarantees
    * A Fault is plain data that never changes; all its values are texts and numbers.
    * `parse(text_of(fault)) == fault` for every fault that was read. The error for a line that is not understood names
      the wrong word.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from squall.engine.errors import UsageError
from squall.scheduler.common.duration import parse_duration_secs
from squall.scheduler.faults.catalogue import Parameter, Value


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


NAME, WORKER, COMPONENT, TASK, NODE = "", "worker", "component", "task", "node"
"""Sorts of targets. A NAME is the worker, node or component of that name."""
RANDOM, RANDOM_OF = "random worker", "random worker of"
NIMBUS, SUPERVISOR, FORKING_PARENT = DAEMONS = "nimbus", "supervisor", "forking-parent"
TARGETS = {
    RANDOM_OF: ("random worker of NAME", "random worker on NAME", "random of NAME", "random on NAME"),
    RANDOM: ("random worker", "random"),
    NIMBUS: ("nimbus",),
    TASK: ("task COMPONENT[NUMBER]",),
    **{sort: (f"{sort} NAME",) for sort in (WORKER, COMPONENT, NODE, SUPERVISOR, FORKING_PARENT)},
}
"""Sort -> the forms of a target. Any other word is a NAME."""
CLAUSES = {
    "after_acked": ("after COUNT acked",),
    "at_secs": ("at TIME", "after TIME-WITH-UNIT"),
    "for_secs": ("for TIME",),
    "every_secs": ("every TIME",),
    "times": ("COUNT times",),
    "probability": ("with probability CHANCE", "probability CHANCE", "PERCENT"),
    "seed": ("seed COUNT",),
    "frames": ("of FRAMES",),
    "params": ("NAME=VALUE", "with NAME=VALUE"),
}
"""Field of a Fault, or parameter -> the forms of its clause; the first is the one that is written."""
_VALUE = re.compile("[A-Z][^ ]*")
_LOOKS = {
    "PERCENT": r"[0-9][0-9.e+-]*%", "TIME-WITH-UNIT": ".*[a-z]", "NAME=VALUE": r"[A-Za-z_][A-Za-z0-9_-]*=.*",
    "COMPONENT[NUMBER]": r".+\[[0-9]{1,9}\]",
}  # fmt: skip
"""Values that are known by their looks. Any word may stand for the others."""
BOTH_WAYS = "<->"
_ARROWS = ("->", BOTH_WAYS)
MAX_CHARS = 4000
"""Length of a line: no one writes a longer one by hand."""
_PLAIN = re.compile(r"[\w.:/@+%=^\[\]-]+")


def _chance(word: str) -> float:
    number = word.removesuffix("%")
    whole = 1 if number == word else 100
    return float(Parameter("probability", "", 0.0, 0, whole).read(number)) / whole


_READERS: dict[str, Callable[[str], Value]] = {
    "after_acked": Parameter("after_acked", "", 1, 1, 1e15).read,
    "at_secs": lambda word: 0.0 if word in ("0", "0s") else parse_duration_secs(word),
    "for_secs": parse_duration_secs,
    "every_secs": parse_duration_secs,
    "times": Parameter("times", "", 1, 1, 1e15).read,
    "probability": _chance,
    "seed": Parameter("seed", "", 0, 0, 1e15).read,
}
"""How the fields of a Fault are read."""


class Target(NamedTuple):
    """One worker, component, task, node or daemon, or a random worker."""

    sort: str
    name: str = ""
    """With the number of a task, as in "count[0]". Of RANDOM_OF: what to draw from."""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.sort, self.name and quoted(self.name))))


class LinkTarget(NamedTuple):
    """The links from some workers to others, one way or both ways."""

    sender: Target
    arrow: str
    receiver: Target

    def __str__(self) -> str:
        return " ".join(map(str, self))


def quoted(text: str) -> str:
    """Write any text as one word."""
    # Not shlex.quote: a comma, which parts targets here, means nothing to a shell.
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "'\"'\"'") + "'"


def text_of(fault: Fault) -> str:
    """Write a fault as a line."""
    parts = [fault.kind, ", ".join(fault.targets)]
    for field in _READERS:
        value = getattr(fault, field)
        if value != getattr(_BARE, field):
            text = repr(value).removesuffix(".0") + "s" * field.endswith("_secs")
            parts.append(_VALUE.sub(text, CLAUSES[field][0]))
    parts += [f"{name}={quoted(text)}" for name, text in fault.params.items()]
    return " ".join(filter(None, parts))


_BARE = Fault("")


def parse(line: str) -> Fault:
    """Read a fault from a line. UsageError names the mistake."""
    try:
        return _fault(*_words_of(line))
    except UsageError as error:
        raise UsageError(f"{line[:200]!r}: {error}") from None


def parse_target(text: str) -> Target | LinkTarget:
    """Read one target. UsageError if the text holds none, or more."""
    words = _words_of(text)
    target = _target(words)
    if words:
        raise UsageError(f"target {text[:80]!r} is more than one target; a name with blanks stands in quotes")
    return target


def _words_of(text: str) -> list[str]:
    """The words of a line, without quotes and commas."""
    if len(text) > MAX_CHARS:
        raise UsageError(f"{text[:40]!r}... has {len(text)} characters; allowed: at most {MAX_CHARS}")
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace += ","
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(filter(None, lexer))
    except ValueError as error:
        raise UsageError(f"{str(error).lower()}; a name with a quote stands in quotes of the other kind") from None


def _fault(kind: str = "", *rest: str) -> Fault:
    if not re.fullmatch("[a-z][a-z0-9-]*", kind):
        raise UsageError(f"it begins with {kind[:80]!r}, which is no fault" if kind else "it is empty")
    words, targets = list(rest), list[str]()
    fields: dict[str, Any] = {}
    params: dict[str, Any] = {}
    while words:
        row, text = _take(words, CLAUSES)
        given = fields if row in _READERS else params
        if row == "params":
            row, _, text = text.partition("=")
        if row in given:
            raise UsageError(f"{row} is given twice")
        if row:
            given[row] = text if given is params else _READERS[row](text)
        elif words[0] in ("in", "on") and not targets:
            del words[0]
        else:
            targets.append(str(_target(words)))
    if {"at_secs", "after_acked"} <= fields.keys():
        raise UsageError("it begins at a time or after a number of acked messages, not both")
    return Fault(kind, tuple(targets), params=params, **fields)


def _target(words: list[str]) -> Target | LinkTarget:
    target = _end(words)
    return LinkTarget(target, words.pop(0), _end(words)) if words and words[0] in _ARROWS else target


def _end(words: list[str]) -> Target:
    if not words:
        raise UsageError("a target is missing at the end")
    if words[0] in _ARROWS:
        raise UsageError(f"a target is missing before {words[0]!r}")
    if words[0] == "-":
        raise UsageError("'-' is no target: the shell took the `>` of an arrow; write 'node-1 -> node-2', in quotes")
    sort, name = _take(words, TARGETS)
    return Target(sort, name if sort else words.pop(0))


def _take(words: list[str], rows: dict[str, tuple[str, ...]]) -> tuple[str, str]:
    """Take the first words that have a form of these rows: the row, and the value. Both are empty if there are none."""
    begun = []
    for row, forms in rows.items():
        for form in forms:
            size = len(form.split())
            pattern = _VALUE.sub(lambda value: f"({_LOOKS.get(value[0], '.+')})", form).replace(" ", _GAP)
            if match := re.fullmatch(pattern, _GAP.join(words[:size]), re.DOTALL):
                del words[:size]
                return row, "".join(match.groups())
            begun += [form] if form.split()[0] == words[0] else []
    if begun:
        raise UsageError(f"`{words[0]}` is written {' or '.join(begun)}")
    return "", ""


_GAP = "\0"
"""Stands between words while they are compared with a form."""
