"""Reads cleaning rules from YAML: a list of steps, which rows pass in this order.

::

    rules:
      - extract: '^(?<host>[^ ]+) .* (?<status>[0-9]{3})$'      # columns from a text
        from: text
      - cast: {status: int}
      - range: {status: [100, 599]}
        reason: no such status
      - drop: url like '/health%'

Guarantees that each mistake that can be seen without Spark is named with its line, all of them together; the rest
(columns and SQL) `pipeline.cleaning` finds before the first row is read. Decides only; no Spark.
"""

from __future__ import annotations

import difflib
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of
from squall.engine.foreign.yaml_nodes import LineError, Node, Scalar, read_bytes, read_nodes
from squall.engine.foreign.yaml_nodes import Mapping as MappingNode
from squall.engine.foreign.yaml_nodes import Sequence as SequenceNode

#: What rules of each kind do, in one line.
KINDS = {
    "extract": "columns from the groups of a regular expression; a text that does not match is quarantined",
    "rename": "columns get other names",
    "trim": "blanks at both ends of texts are removed",
    "cast": "columns get a type; a value that is none is quarantined",
    "derive": "columns from SQL expressions",
    "require": "rows in which one is null or empty are quarantined",
    "match": "rows whose text does not match a regular expression are quarantined",
    "range": "rows with a value below or above are quarantined",
    "one_of": "rows with any other value are quarantined",
    "refuse": "rows for which a SQL condition holds are quarantined",
    "drop": "rows for which a SQL condition holds are dropped, and counted",
    "keep": "all other rows are dropped, and counted",
    "columns": "the columns that stay, in this order",
}
_WITH_REASON = ("extract", "cast", "require", "match", "range", "one_of", "refuse")
#: Kinds that make, rename or leave out columns.
_CHANGING = ("extract", "rename", "derive", "columns")
_COLUMN_NAME = re.compile(r"[A-Za-z_]\w*")
_GROUP_NAME = re.compile(r"\(\?P?<([A-Za-z_]\w*)>")


class RuleMistakes(UsageError):
    """The mistakes in a file of rules. `mistakes`: one line each."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(self.mistakes))

    def __reduce__(self) -> tuple[type[RuleMistakes], tuple[tuple[str, ...]]]:
        return type(self), (self.mistakes,)


@dataclass(frozen=True, slots=True)
class Rule:
    """One step."""

    kind: str
    line: int
    value: Any
    """By kind: names, a mapping from column to something, a regular expression or SQL."""
    source: str = "text"
    """Of `extract`: the column that is searched."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """The steps of a file."""

    path: str
    steps: tuple[Rule, ...]
    sha256: str

    def place(self, rule: Rule) -> str:
        return f"{self.path}:{rule.line}"

    def label(self, rule: Rule) -> str:
        """The rule in a reason or a count: short, and the same for all its rows."""
        return f"{Path(self.path).name}:{rule.line}"


@dataclass
class _Draft:
    path: str
    steps: list[Rule] = field(default_factory=list)
    mistakes: list[tuple[int, str]] = field(default_factory=list)
    unknown_from: float = math.inf
    """The line of the first step with a mistake that may make columns."""


def load_rules(path: Path, check: Callable[[Iterable[Rule]], list[tuple[int, str]]] = lambda steps: []) -> Rules:
    """Read a file of rules. RuleMistakes names all that is wrong in it. `check`: finds more, with lines."""
    draft = _Draft(str(path))
    data = b""
    try:
        data = read_bytes(path)
        _read(draft, read_nodes(data, "file of rules"))
    except UsageError as error:
        draft.mistakes.append((error.line if isinstance(error, LineError) else 0, str(error)))
    draft.mistakes += check(step for step in draft.steps if step.line < draft.unknown_from)
    if draft.mistakes:
        found = sorted(draft.mistakes, key=lambda mistake: mistake[0])
        raise RuleMistakes(f"{path}:{line}: {text}" if line else f"{path}: {text}" for line, text in found)
    return Rules(str(path), tuple(draft.steps), hashlib.sha256(data).hexdigest())


def near(name: str, known: Iterable[str]) -> str:
    """What to say behind a name that is not known."""
    names = list(known)
    found = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {found[0]!r}?" if found else f"; allowed: {', '.join(names)}"


def plain_groups(regex: str) -> tuple[str, dict[str, int]]:
    """A regular expression without the names of its groups, and the number of each: Java knows fewer names."""
    names: dict[str, int] = {}
    out = []
    at = number = 0
    in_class = False
    while at < len(regex):
        char = regex[at]
        if char == "\\":
            out.append(regex[at : at + 2])
            at += 2
            continue
        if char == "[" and not in_class:
            in_class = True
        elif char == "]" and in_class and regex[at - 1] != "[":
            in_class = False
        elif char == "(" and not in_class:
            if named := _GROUP_NAME.match(regex, at):
                number += 1
                if named[1] in names:
                    raise UsageError(f"the group {named[1]!r} is there twice")
                names[named[1]] = number
                out.append("(")
                at = named.end()
                continue
            number += not regex.startswith("(?", at)
        out.append(char)
        at += 1
    return "".join(out), names


def _read(draft: _Draft, node: Node | None) -> None:
    if not isinstance(node, MappingNode):
        raise LineError(1 if node is None else node.line, "a file of rules has the key rules; this one has no keys")
    for key, (line, _) in node.entries.items():
        if key != "rules":
            draft.mistakes.append((line, f"key {repr_of(key)} is unknown{near(key, ['rules'])}"))
    line, steps = node.entries.get("rules", (node.line, None))
    if not isinstance(steps, SequenceNode) or not steps.items:
        draft.mistakes.append((line, "rules is a list: one or more, each behind a dash"))
        return
    for item in steps.items:
        before = len(draft.mistakes)
        if not isinstance(item, MappingNode):
            draft.mistakes.append((item.line, f"a rule is one of the keys {', '.join(KINDS)}, and its value"))
        else:
            _read_rule(draft, item)
        if len(draft.mistakes) > before and not _keeps_columns(item):
            draft.unknown_from = min(draft.unknown_from, item.line)


def _keeps_columns(node: Node) -> bool:
    """Whether a step has the columns that it was given, as far as its keys tell."""
    kinds = [key for key in node.entries if key in KINDS] if isinstance(node, MappingNode) else []
    return bool(kinds) and not any(kind in _CHANGING for kind in kinds)


def _read_rule(draft: _Draft, node: MappingNode) -> None:
    kinds = [key for key in node.entries if key in KINDS]
    known = [*KINDS, "from", "reason"]
    before = len(draft.mistakes)
    for key, (line, _) in node.entries.items():
        if key not in known:
            draft.mistakes.append((line, f"rule {repr_of(key)} is unknown{near(key, known)}"))
    if len(kinds) != 1:
        if len(draft.mistakes) == before:
            said = f"has the rules {' and '.join(kinds)}; put each behind a dash of its own" if kinds else "has no rule"
            draft.mistakes.append((node.line, f"this step {said}"))
        return
    (kind,) = kinds
    line, value = node.entries[kind]
    given = {key: _extra(draft, node, key, kind) for key in ("from", "reason")}
    try:
        read = _READERS[kind](value)
    except LineError as error:
        draft.mistakes.append((error.line, f"{kind}: {error}"))
    except UsageError as error:
        draft.mistakes.append((line, f"{kind}: {error}"))
    else:
        if len(draft.mistakes) == before:
            draft.steps.append(Rule(kind, line, read, given["from"] or "text", given["reason"]))


def _extra(draft: _Draft, node: MappingNode, key: str, kind: str) -> str:
    """The text of a key beside the rule; empty if it is not given."""
    if key not in node.entries:
        return ""
    line, text = node.entries[key]
    allowed = ("extract",) if key == "from" else _WITH_REASON
    if kind not in allowed:
        draft.mistakes.append((line, f"{kind} takes no {key!r}; allowed with {', '.join(allowed)}"))
    elif isinstance(text, Scalar) and text.text:
        return text.text
    else:
        draft.mistakes.append((line, f"{key} is a text"))
    return ""


def _text(node: Node) -> str:
    if not isinstance(node, Scalar) or not node.text:
        raise LineError(node.line, "its value is a text")
    return node.text


def _names(node: Node) -> tuple[str, ...]:
    items = node.items if isinstance(node, SequenceNode) else (node,)
    names = tuple(_text(item) for item in items)
    if not names or len(set(names)) < len(names):
        raise LineError(node.line, "its value is a list of one or more different columns")
    return names


def _by_column(read: Callable[[Node], Any]) -> Callable[[Node], dict[str, Any]]:
    """The reader of a mapping from columns."""

    def by_column(node: Node) -> dict[str, Any]:
        if not isinstance(node, MappingNode) or not node.entries:
            raise LineError(node.line, "its value is a mapping from columns, such as {status: ...}")
        return {column: read(value) for column, (_, value) in node.entries.items()}

    return by_column


def _regex(node: Node) -> str:
    """A regular expression that Java and Python both know, as far as Python can tell."""
    text = _text(node)
    try:
        re.compile(plain_groups(text)[0])
    except re.error as error:
        # Java knows more than Python; what both refuse is told here, the rest when Spark is asked.
        if "unknown extension" not in str(error) and "bad escape" not in str(error):
            raise LineError(node.line, f"{repr_of(text)} is no regular expression: {error}") from None
    except UsageError as error:
        raise LineError(node.line, str(error)) from None
    return text


def _extraction(node: Node) -> str:
    text = _regex(node)
    if not plain_groups(text)[1]:
        raise LineError(node.line, "the regular expression has no named group, such as (?<host>[^ ]+)")
    return text


def _bounds(node: Node) -> tuple[str | None, str | None]:
    """The least and the greatest value; `null` or `~` where there is none."""
    if not isinstance(node, SequenceNode) or len(node.items) != 2:
        raise LineError(node.line, "a range is two values, such as [100, 599] or [0, null]")
    ends = [None if _is_null(item) else _text(item) for item in node.items]
    if ends == [None, None]:
        raise LineError(node.line, "a range has at least one end")
    try:
        if None not in ends and float(ends[0] or 0) > float(ends[1] or 0):
            raise LineError(node.line, f"the range [{ends[0]}, {ends[1]}] is empty")
    except ValueError:
        # Dates, for one: Spark compares them.
        return ends[0], ends[1]
    return ends[0], ends[1]


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and not node.is_quoted and node.text in ("", "null", "~")


def _values(node: Node) -> tuple[str, ...]:
    if not isinstance(node, SequenceNode) or not node.items:
        raise LineError(node.line, "its value is a list of values for each column, such as {method: [GET, POST]}")
    return tuple(_text(item) for item in node.items)


def _new_name(node: Node) -> str:
    name = _text(node)
    if not _COLUMN_NAME.fullmatch(name):
        raise LineError(node.line, f"{repr_of(name)} is no name of a column; allowed: letters, digits and _")
    return name


def _derived(node: Node) -> dict[str, str]:
    found: dict[str, str] = _by_column(_text)(node)
    for name in found:
        if not _COLUMN_NAME.fullmatch(name):
            raise LineError(node.line, f"{repr_of(name)} is no name of a column; allowed: letters, digits and _")
    return found


_READERS: Mapping[str, Callable[[Node], Any]] = {
    "extract": _extraction,
    "rename": _by_column(_new_name),
    "trim": _names,
    "cast": _by_column(_text),
    "derive": _derived,
    "require": _names,
    "match": _by_column(_regex),
    "range": _by_column(_bounds),
    "one_of": _by_column(_values),
    "refuse": _text,
    "drop": _text,
    "keep": _text,
    "columns": _names,
}
