"""A fault as data: what is written is what is read, and nothing else is read."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.engine.errors import UsageError
from squall.scheduler.common.duration import MAX_SECS
from squall.scheduler.faults.fault import MAX_NUMBER, AfterAcked, AfterSecs, Fault

secs = st.floats(0, MAX_SECS)
more_secs = st.floats(0, MAX_SECS, exclude_min=True)
counts = st.integers(1, MAX_NUMBER)
words = st.text(min_size=1, max_size=10)
numbers = st.integers(-MAX_NUMBER, MAX_NUMBER) | st.floats(-MAX_NUMBER, MAX_NUMBER)
values = numbers | st.text() | st.booleans()
whens = st.one_of(st.builds(AfterSecs, secs), st.builds(AfterAcked, counts))
faults = st.builds(
    Fault, words, st.lists(words, max_size=3).map(tuple), whens, st.none() | more_secs, st.none() | counts,
    st.none() | more_secs, st.none() | st.floats(0, 1), st.dictionaries(words, values, max_size=3),
    st.none() | st.integers(0, 2**64 - 1),
)  # fmt: skip


@given(faults)
def test_what_is_written_is_read(fault: Fault) -> None:
    assert Fault.from_json(json.loads(json.dumps(fault.to_json()))) == fault


@given(faults)
def test_fault_is_a_value(fault: Fault) -> None:
    assert {fault: 1}[copy.deepcopy(fault)] == 1
    assert pickle.loads(pickle.dumps(fault)) == fault


@pytest.mark.parametrize("document", [None, 3, "kill", [], ["kill"]])
def test_what_is_no_object_is_no_fault(document: object) -> None:
    with pytest.raises(UsageError, match="a fault is an object with a kind, not "):
        Fault.from_json(document)


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("kind", "", "text"), ("kind", 3, "text"), ("kind", None, "text"),
        ("targets", "node-1", "a list of targets"), ("targets", [""], "text"), ("targets", [3], "text"),
        ("when", 3, '{"after_secs"'), ("when", {}, '{"after_secs"'),
        ("when", {"after_secs": 1, "x": 2}, '{"after_secs"'),
        ("when", {"after_secs": -1}, "a number of seconds from 0 to"),
        ("when", {"after_secs": float("nan")}, "a number of seconds from 0 to"),
        ("when", {"after_acked": 0}, "an integer from 1 up"), ("when", {"after_acked": True}, "an integer from 1 up"),
        ("every_secs", 0, "a number of seconds above 0"), ("every_secs", float("inf"), "a number of seconds above 0"),
        ("every_secs", "1s", "a number of seconds above 0"), ("every_secs", 10**400, "a number of seconds above 0"),
        ("times", 0, "an integer from 1 up"), ("times", 1.0, "an integer from 1 up"),
        ("for_secs", -0.0, "a number of seconds above 0"), ("for_secs", True, "a number of seconds above 0"),
        ("probability", 1.01, "a number from 0 to 1"), ("probability", -1e-9, "a number from 0 to 1"),
        ("params", [], "an object of parameters"), ("params", {"a": None}, "names with a number"),
        ("params", {"a": float("inf")}, "names with a number"), ("params", {3: 3}, "names with a number"),
        ("seed", -1, "an integer from 0 to"), ("seed", 2**64, "an integer from 0 to"),
        ("seed", 1.5, "an integer from 0 to"),
    ],
)  # fmt: skip
def test_wrong_value_is_named(key: str, value: object, allowed: str) -> None:
    with pytest.raises(UsageError) as caught:
        Fault.from_json({"kind": "kill", key: value})
    text = str(caught.value)
    assert f"{key} is " in text
    assert f"allowed: {allowed}" in text
    assert len(text) < 300


def test_every_mistake_of_a_fault_is_named_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        Fault.from_json({"for": 3, "times": 0, "\x1b[2J": 1, "probability": "often"})
    text = str(caught.value)
    assert text.count("; ") == 2 + 3
    for part in ("no such key as 'for', '\\x1b[2J' (", "no kind", "times is 0", "probability is 'often'"):
        assert part in text
    assert "\x1b" not in text
