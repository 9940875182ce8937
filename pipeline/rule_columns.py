"""What rules do to the names of columns: all that can be told of them without rows, and without Spark.

Decides only. Guarantees that a rule which names a column that is not there, or makes one that Spark would take for
another, is a UsageError.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from squall.engine.errors import UsageError
from squall.pipeline.column_names import folded
from squall.pipeline.rules import Rule, RuleMistakes, Rules, near, plain_groups


def check_columns(rules: Rules, names: Sequence[str]) -> None:
    """RuleMistakes for rules that do not fit the columns which they begin with."""
    if found := column_mistakes(rules.steps, names):
        raise RuleMistakes(f"{rules.path}:{line}: {text}" for line, text in found)


def column_mistakes(rules: Iterable[Rule], names: Sequence[str]) -> list[tuple[int, str]]:
    """The mistakes of rules that begin with these columns, each with its line."""
    columns = list(names)
    mistakes = []
    for rule in rules:
        try:
            pass_columns(rule, columns)
        except UsageError as error:
            mistakes.append((rule.line, f"{rule.kind}: {error}"))
    return mistakes


def pass_columns(rule: Rule, columns: list[str]) -> None:
    """Change a list of columns as a rule does. After a mistake too it has what the rule makes, so that those which use
    that are no mistakes."""
    match rule.kind:
        case "extract":
            try:
                _check([rule.source], columns)
            finally:
                _add(plain_groups(rule.value)[1], columns)
        case "rename":
            for old, new in rule.value.items():
                _rename(old, new, columns)
        case "derive":
            _add(rule.value, columns)
        case "columns":
            try:
                _check(rule.value, columns)
            finally:
                columns[:] = rule.value
        case "trim" | "require" | "cast" | "match" | "range" | "one_of":
            _check(rule.value, columns)


def _check(names: Iterable[str], columns: Sequence[str]) -> None:
    for name in names:
        if name not in columns:
            raise UsageError(f"there is no column {name!r}{near(name, columns)}")


def _check_twin(new: str, columns: Iterable[str]) -> None:
    """Spark would put the value of a new column into the one whose name differs in case, too."""
    for name in columns:
        if name != new and folded(name) == folded(new):
            said = f"there is a column {name!r}, which is one with {new!r} to Spark"
            raise UsageError(f"{said}; allowed: another name")


def _add(names: Iterable[str], columns: list[str]) -> None:
    before = list(columns)
    columns += [name for name in names if name not in columns]
    for name in names:
        _check_twin(name, before)


def _rename(old: str, new: str, columns: list[str]) -> None:
    if old not in columns:
        columns += [] if new in columns else [new]
        _check([old], [name for name in columns if name != new])
    if new in columns:
        raise UsageError(f"there is a column {new!r} already")
    if folded(new) != folded(old):
        _check_twin(new, columns)
    columns[columns.index(old)] = new
