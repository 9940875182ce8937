"""Fault plans: what a file says, and every mistake of it with its line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.engine.foreign.yaml_nodes import MAX_BYTES, LineError, read_nodes
from squall.scheduler.common.messages import ComponentSummary, TopologyRecord
from squall.scheduler.faults.fault import AfterAcked, AfterSecs, Fault
from squall.scheduler.faults.plan import Draft, Plan, PlanMistakes
from squall.scheduler.nimbus.fault_view import view_of
from tests.unit.test_fault_resolution import UNPLACED, VIEW

GOOD = """\
# what a plan may hold
seed: 7
for: 60s
faults:
  - kill worker count[0] at 3s
  - "drop 5% of data for 10s"
  - fault: partition
    targets: [node-1, node-2]
    at: 2s
    for: 3s
    every: 10s
  - {fault: kill, target: random worker of count, after: 10000 acked}
  - fault: poison
    target: count
    field: word
    equals: "5"
    for: 500ms
    seed: 3
  - fault: slow
    target:
      - count
      - split, lines
    ms: 5
    probability: 10%
    at: 1m
"""
FAULTS = (
    Fault("kill", ("worker count[0]",), AfterSecs(3)),
    Fault("drop", for_secs=10, probability=0.05, params={"frames": "data"}),
    Fault("partition", ("node-1", "node-2"), AfterSecs(2), every_secs=10, for_secs=3),
    Fault("kill", ("random worker of count",), AfterAcked(10000)),
    Fault("poison", ("count",), for_secs=0.5, params={"field": "word", "equals": "5"}, seed=3),
    Fault("slow", ("count", "split", "lines"), AfterSecs(60), probability=0.1, params={"ms": 5}),
)


def said(draft: Draft) -> list[str]:
    with pytest.raises(PlanMistakes) as caught:
        draft.checked(VIEW)
    return list(caught.value.mistakes)


def mistakes(text: str | bytes, tmp_path: Path) -> list[str]:
    """Without the name of the file: "4: ..."."""
    path = tmp_path / "plan.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    draft = Draft()
    draft.add_file(path)
    found = said(draft)
    assert all(mistake.isprintable() and len(mistake) < 600 for mistake in found)
    return [mistake.removeprefix(f"{path}:") for mistake in found]


def test_what_a_plan_may_hold(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(GOOD)
    draft = Draft()
    draft.add_file(path)
    assert draft.checked(VIEW) == Plan(FAULTS, 7, 60)
    assert str(draft.found[2][0]) == f"{path}:7"


def test_lines_of_the_command_line_join_it(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("faults: [kill count]")
    draft = Draft()
    draft.add_file(path)
    draft.add_line("kill split every 1s", "--fault 1")
    assert [fault.targets for fault in draft.checked(VIEW, 5).faults] == [("count",), ("split",)]
    draft.add_line("kil split", "--fault 2")
    draft.add_line("kill at", "--fault 3")
    with pytest.raises(PlanMistakes) as caught:
        draft.checked(VIEW, 5)
    assert [mistake[:30] for mistake in caught.value.mistakes] == [
        "--fault 2: fault 'kil' is unkn", "--fault 3: 'kill at' is not un",
    ]  # fmt: skip


def test_several_plans_join_and_only_one_may_have_a_seed(tmp_path: Path) -> None:
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text("seed: 7\nfaults:\n  - kill count\n")
    other.write_text("for: 3s\nfaults:\n  - kill split\n")
    draft = Draft()
    draft.add_file(one)
    draft.add_file(other)
    assert draft.checked() == Plan((Fault("kill", ("count",)), Fault("kill", ("split",))), 7, 3.0)
    other.write_text("seed: 8\nfaults:\n  - kil split\n")
    draft = Draft()
    draft.add_file(one)
    draft.add_file(other)
    assert said(draft) == [
        f"{other}:1: seed is given by {one} too; a run has one",
        f"{other}:3: fault 'kil' is unknown; did you mean kill? (squall faults lists all)",
    ]


def test_number_in_place_of_a_pattern_is_told_to_be_quoted(tmp_path: Path) -> None:
    quoted = '{fault: poison, target: count, field: word, matches: "4"}'
    text = f"faults:\n  - poison count field=word matches=4\n  - {quoted}\n"
    assert mistakes(text, tmp_path) == ['2: matches is 4; allowed: a regular expression, in double quotes: "4"']


def test_the_earlier_end_holds() -> None:
    draft = Draft(for_secs=9)
    assert draft.checked(None, 5).for_secs == 5
    assert draft.checked(None, 50).for_secs == 9
    assert draft.checked(None).for_secs == 9
    assert Draft().checked(None, 5).for_secs == 5
    assert Draft().checked(None).for_secs is None


def test_every_mistake_is_named_at_once_with_its_line(tmp_path: Path) -> None:
    found = mistakes(
        """\
sead: 7
seed: -1
for: 3 weeks
faults:
  - kil count
  - kill cuont
  - kill count for 3 weeks
  - fault: stop
    target: [count, "count[9]"]
    for: 3 weeks
    every: soon
    tmies: 3
  - target: count
  - [kill, count]
  - stop count for 3s every 1s
  - kill count every 1s
  - exception in count with probability 0.5 ms=3
  - slow count ms=0
  - poison count field=word equals=1 matches=(
  - kill count for 3s
  - kill count 3 times
  - kill count with probability 0.5
  - drop 5% of nonsense
  - poison count
""",
        tmp_path,
    )
    expected = [
        "1: key 'sead' is unknown; keys are faults, seed", "2: seed is '-1'; allowed", "3: duration '3weeks' has an",
        "7: 'kill count for 3 weeks' is not understood", "10: duration '3weeks' has an unknown unit",
        "11: duration 'soon' is not", "8: there is no task count[9]", "8: stop has no parameter 'tmies'",
        "13: key fault is missing", "14: a fault is a line, or keys; this is a list",
        "5: fault 'kil' is unknown; did you mean kill?", "6: there is no worker, node or component 'cuont'",
        "15: stop every 1s never ends", "15: stop for 3s every 1s is never healed", "16: kill every 1s never ends",
        "17: exception has no parameter 'ms'; it has none", "18: ms is 0; allowed: a number from 0.001 to",
        "19: matches is '(', which is no regular expression", "19: poison needs exactly one of equals, matches",
        "20: kill is over at once; it takes no `for`", "21: 3 times of kill need an `every`",
        "22: kill takes no probability; faults that do are exception", "23: frames is 'nonsense'; allowed: all, hello",
        "24: poison needs exactly one of equals, matches", "24: poison needs field=..., text",
    ]  # fmt: skip
    for line in expected:
        assert [mistake for mistake in found if mistake.startswith(line)], line
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: a plan has the keys faults, seed, for; this one has none"),
        ("# nothing\n", "1: a plan has the keys"), ("- kill count", "1: a plan has the keys"),
        ("kill count", "1: a plan has the keys"), ("seed: 3", "1: a plan has a list of faults"),
        ("seed: 3\nfaults:", "2: a plan has a list of faults"), ("faults: []", "1: a plan has a list of faults"),
        ("faults: {kill: 3}", "1: a plan has a list of faults"),
        ("faults:\n\t- kill count", "2: is not YAML: while scanning for the next token, found character '\\t'"),
        ("faults: [kill count", "1: is not YAML"), ("faults: 'kill", "1: is not YAML"),
        ("%YAML 9.9\n---\na: b", "1: is not"),
        ("seed: 1\nseed: 2\nfaults: [kill count]", "2: has the key 'seed' twice"),
        ("faults:\n- fault: kill\n  fault: stop\n", "3: has the key 'fault' twice"),
        ("faults:\n- fault: kill\n  target: count\n  targets: count[7]", "2: there is no task count[7]"),
        ("faults: &a [*a]", "1: holds an alias or anchor ('a'); write it out"),
        ("a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]", "1: holds an alias or anchor"),
        ("faults: !!python/object/apply:os.system [true]", "1: holds a tag ('tag:yaml.org,2002:python/object/apply"),
        ("faults: [!x kill]", "1: holds a tag"),
        ("faults: [kill count]\n---\nfaults: []", "2: begins a second document"),
        ("faults: [[[[[x]]]]]", "1: is nested too deep"), ("faults:\n- {[a]: b}", "2: has a list as a key"),
        ("[" * 50_000, "1: is nested too deep"), ("faults:\n- fault: {a: b}", "2: fault is a list or has keys"),
        ("faults:\n- fault: kill\n  target: {a: b}", "3: target is a list or has keys"),
        ("seed: [1]\nfaults: [kill count]", "1: seed is a list"),
        ("seed: .nan\nfaults: [kill count]", "1: seed is '.nan'; allowed: "),
        ("seed: 1e999\nfaults: [kill count]", "1: seed is '1e999'; allowed: "),
        (f"seed: {'9' * 999}\nfaults: [kill count]", "1: seed"),
        ("faults:\n- fault: slow\n  target: count\n  ms: .nan", "2: ms is '.nan'; allowed: a number from"),
        ("faults:\n- fault: slow\n  target: count\n  ms: .inf", "2: ms is '.inf'; allowed: a number from"),
        (f"faults:\n- fault: slow\n  target: count\n  ms: 1{'0' * 5000}", "2: ms is '1000"),
        ("faults:\n- fault: slow\n  target: count\n  ms: 1e999", "2: ms is '1e999'"),
        (f"faults:\n- fault: kill\n  target: count\n  at: 1{'0' * 999}s", "4: duration '1000"),
        ("faults:\n- fault: kill\n  target: count\n  at: 3s for 5s", "4: at '3s for 5s' is not understood from 'for'"),
        ("faults:\n- fault: kill\n  target: count\n  at: 3s\n  after: 5s", "5: when is given twice"),
        ("faults:\n- null", "2: fault 'null' is unknown"), ("faults:\n- ", "2: '' is not understood: it is empty"),
        ("faults:\n- 3", "2: '3' is"), (b"faults:\n- kill \xff", "2: is not UTF-8"),
        (b"faults:\n- kill \x00", "2: holds a character that no plan"), (b"\xff\xfef\x00", "1: is not UTF-8"),
        ("faults:\n- kill \x1b[2J", "2: holds a character that no plan may hold"),
        ("faults:\n- \"kill \\e[2J\"", "2: "), ("faults:\n- kill " + "x" * 9999, "2: "),
        ("? a\n? b\n", "1: key 'a' is unknown"), ("\ufefffaults: []", "1: a plan has a list"),
    ],
)  # fmt: skip
def test_what_is_no_plan_is_refused_with_a_line(text: str | bytes, said: str, tmp_path: Path) -> None:
    found = mistakes(text, tmp_path)
    assert [mistake for mistake in found if mistake.startswith(said)]


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    draft = Draft()
    draft.add_file(path)
    assert said(draft) == [f"{path}: it is longer than {MAX_BYTES // 1024} KiB; allowed: at most that"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.yaml", "No such file"), (tmp_path, "Is a directory")):
        draft = Draft()
        draft.add_file(path)
        assert said(draft)[0].startswith(f"{path}: cannot read it: {why}")


@given(st.text(max_size=80) | st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: str | bytes) -> None:
    line = 1
    try:
        read_nodes(data if isinstance(data, bytes) else data.encode("utf-8", "replace"), "plan")
    except LineError as error:
        line = error.line
    assert line >= 1


def test_components_are_known_before_anything_is_placed() -> None:
    draft = Draft()
    draft.add_line("kill count[1]", "--fault")
    draft.add_line("kill random worker of count", "--fault")
    draft.checked(UNPLACED)


def test_field_that_no_tuple_to_the_target_has() -> None:
    received = {("words", "lines"): frozenset[str](), ("words", "split"): frozenset({"line"})}
    view = replace(VIEW, received=received)
    draft = Draft()
    for target in ("lines", "split", "count", "split lines", "split count"):
        draft.add_line(f"poison {target} field=word equals=3", target)
    draft.add_line("poison split lines field=line equals=3", "right")
    with pytest.raises(PlanMistakes) as caught:
        draft.checked(view)
    assert list(caught.value.mistakes) == [
        "lines: field is 'word', which no tuple to lines has; fields of its tuples are none",
        "split: field is 'word', which no tuple to split has; fields of its tuples are line",
        "split lines: field is 'word', which no tuple to split, lines has; fields of its tuples are line",
    ]


def test_nimbus_knows_fields_that_were_told_and_no_others() -> None:
    """A record from before they were told is taken as it is."""
    told = ComponentSummary("split", "bolt", 1, 1, ["line"])
    components = [ComponentSummary("lines", "spout", 1, 1), told, ComponentSummary("count", "bolt", 1, 1)]
    record = TopologyRecord("words-1", "words", "ACTIVE", {}, components, "", [], 0.0)
    view = view_of(["node-1"], [(record, None)], has_keeper=True)
    assert view.received == {("words", "lines"): frozenset(), ("words", "split"): {"line"}}
