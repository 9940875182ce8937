"""Files of cleaning rules: what they say, and every mistake that shows without Spark, with its line."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from squall.pipeline.rule_columns import column_mistakes
from squall.pipeline.rules import KINDS, RuleMistakes, Rules, load_rules, plain_groups

GOOD = r"""
rules:
  - extract: '^(?P<host>\S+) (?<status>\d+)$'
    from: text
    reason: no line of a log
  - rename: {host: server}
  - trim: [server, status]
  - trim: status
  - cast:
      status: int
  - derive: {is_good: status < 400}
  - require: [server]
  - match: {server: '[a-z.]+'}
  - range: {status: [100, ~]}
  - range: {status: [null, "599"]}
  - one_of: {server: [a, b]}
  - refuse: status = 418
    reason: a teapot
  - drop: server = 'x'
  - keep: status < 500
  - columns: [server, status]
"""


def load(tmp_path: Path, text: str) -> Rules:
    (tmp_path / "rules.yaml").write_text(text)
    return load_rules(tmp_path / "rules.yaml")


def mistakes(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(RuleMistakes) as found:
        load(tmp_path, text)
    prefix = f"{tmp_path}/rules.yaml:"
    assert all(mistake.startswith(prefix) for mistake in found.value.mistakes)
    return [mistake.removeprefix(prefix) for mistake in found.value.mistakes]


def test_rules_of_every_kind_are_read_in_order(tmp_path: Path) -> None:
    rules = load(tmp_path, GOOD)
    assert {rule.kind for rule in rules.steps} == set(KINDS)
    first, *rest = rules.steps
    assert (first.line, first.source, first.reason) == (3, "text", "no line of a log")
    assert [rule.line for rule in rest] == [6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21]
    assert [rule.value for rule in rest if rule.kind == "range"] == [
        {"status": ("100", None)}, {"status": (None, "599")},
    ]
    assert rules.label(first) == "rules.yaml:3"


@pytest.mark.parametrize(
    ("regex", "plain", "names"),
    [
        (r"(?<a>x)(y)(?P<b>z)", "(x)(y)(z)", {"a": 1, "b": 3}),
        (r"\((?<a>x)\)", r"\((x)\)", {"a": 1}),
        (r"[(](?:n)(?=l)(?<=b)(?<!c)(?<a>x)", "[(](?:n)(?=l)(?<=b)(?<!c)(x)", {"a": 1}),
        (r"[]()](?<a_b>[^\])]*)", r"[]()]([^\])]*)", {"a_b": 1}),
        (r"plain", "plain", {}),
    ],
)
def test_groups_are_counted_as_engines_count_them(regex: str, plain: str, names: dict[str, int]) -> None:
    assert plain_groups(regex) == (plain, names)


def test_every_mistake_is_named_with_its_line(tmp_path: Path) -> None:
    text = r"""
rules:
  - extrac: '(?<a>x)'
  - extract: '(x)'
  - extract: '(?<a>x)(?<a>y)'
  - match: {a: '(x'}
  - range: {a: [5, 1]}
  - range: {a: [1]}
  - range: {a: [null, ~]}
  - cast: int
  - one_of: {a: b}
  - trim: [a, a]
  - derive: {a b: c}
  - drop: x
    reason: y
  - keep: x
    from: y
  - drop: x
    keep: y
  - reason: y
  - text
  - rename: {a: 'b c'}
  - drop: [x]
other: 1
"""
    assert mistakes(tmp_path, text) == [
        "3: rule 'extrac' is unknown; did you mean 'extract'?",
        "4: extract: the regular expression has no named group, such as (?<host>[^ ]+)",
        "5: extract: the group 'a' is there twice",
        "6: match: '(x' is no regular expression: missing ), unterminated subpattern at position 0",
        "7: range: the range [5, 1] is empty",
        "8: range: a range is two values, such as [100, 599] or [0, null]",
        "9: range: a range has at least one end",
        "10: cast: its value is a mapping from columns, such as {status: ...}",
        "11: one_of: its value is a list of values for each column, such as {method: [GET, POST]}",
        "12: trim: its value is a list of one or more different columns",
        "13: derive: 'a b' is no name of a column; allowed: letters, digits and _",
        "15: drop takes no 'reason'; allowed with extract, cast, require, match, range, one_of, refuse",
        "17: keep takes no 'from'; allowed with extract",
        "18: this step has the rules drop and keep; put each behind a dash of its own",
        "20: this step has no rule",
        f"21: a rule is one of the keys {', '.join(KINDS)}, and its value",
        "22: rename: 'b c' is no name of a column; allowed: letters, digits and _",
        "23: drop: its value is a text",
        "24: key 'other' is unknown; allowed: rules",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "1: a file of rules has the key rules; this one has no keys"),
        ("rules: []", "1: rules is a list: one or more, each behind a dash"),
        ("a: 1", "1: key 'a' is unknown; allowed: rules"),
        ("rules: [", "1: is not YAML: "),
        ("rules:\n  - drop: &a x\n", "2: holds an alias or anchor"),
        ("rules:\n  - drop: x\n    drop: y\n", "3: has the key 'drop' twice"),
    ],
)
def test_what_is_no_file_of_rules_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    assert mistakes(tmp_path, text)[0].startswith(complaint)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuleMistakes, match=r"none\.yaml: cannot read it: No such file or directory"):
        load_rules(tmp_path / "none.yaml")


def test_columns_are_checked_with_all_else_as_far_as_they_are_known(tmp_path: Path) -> None:
    text = r"""
rules:
  - trim: txt
  - trim: [text, text]
  - extract: '(?<host>x)'
    from: tex
  - extract: '(?<host>x) (?<Path>y)'
  - rename: {host: text}
  - rename: {host: TEXT}
  - rename: {host: name}
  - derive: {Name: upper(name)}
  - require: host
  - columns: [name, text]
  - cast: {line_no: int}
  - derived: {n: 1}
  - trim: n
"""
    (tmp_path / "rules.yaml").write_text(text)
    with pytest.raises(RuleMistakes) as found:
        load_rules(tmp_path / "rules.yaml", partial(column_mistakes, names=("path", "line_no", "text")))
    assert [mistake.partition("rules.yaml:")[2] for mistake in found.value.mistakes] == [
        "3: trim: there is no column 'txt'; did you mean 'text'?",
        "4: trim: its value is a list of one or more different columns",
        "5: extract: there is no column 'tex'; did you mean 'text'?",
        "7: extract: there is a column 'path', which is one with 'Path' to Spark; allowed: another name",
        "8: rename: there is a column 'text' already",
        "9: rename: there is a column 'text', which is one with 'TEXT' to Spark; allowed: another name",
        "11: derive: there is a column 'name', which is one with 'Name' to Spark; allowed: another name",
        "12: require: there is no column 'host'; allowed: path, line_no, text, name, Path, Name",
        "14: cast: there is no column 'line_no'; allowed: name, text",
        "15: rule 'derived' is unknown; did you mean 'derive'?",
    ]
