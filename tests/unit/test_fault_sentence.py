"""A fault in one line: what is written is what was read, and a wrong word is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.engine.errors import UsageError
from squall.scheduler.common.duration import MAX_SECS
from squall.scheduler.faults.catalogue import CATALOGUE
from squall.scheduler.faults.check import mistakes_of
from squall.scheduler.faults.fault import AfterAcked, AfterSecs, Fault
from squall.scheduler.faults.sentence import parse, text_of
from tests.unit.test_fault import counts, values
from tests.unit.test_fault_target import links, targets

secs = st.floats(0, MAX_SECS)
more_secs = st.floats(0, MAX_SECS, exclude_min=True)
whens = st.one_of(st.builds(AfterSecs, secs), st.builds(AfterAcked, counts))
faults = st.builds(
    Fault, st.sampled_from(sorted(CATALOGUE)), st.lists((targets | links).map(str), max_size=3).map(tuple), whens,
    st.none() | more_secs, st.none() | counts, st.none() | more_secs, st.none() | st.floats(0, 1),
    st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_-]{0,5}", fullmatch=True), values, max_size=3),
    st.none() | st.integers(0, 2**64 - 1),
)  # fmt: skip


@given(faults)
def test_what_is_written_is_read(fault: Fault) -> None:
    assert parse(text_of(fault)) == fault


WORDS = [
    "kill", "count", "at", "3s", "3", "after", "acked", "every", "times", ",", "for", "with", "5%", "of", "data", "->",
    "seed", "a=1", "random", "worker", '"x"', "probability", "1e999", "0",
]  # fmt: skip


@given(st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join))
def test_any_line_is_a_fault_or_refused(line: str) -> None:
    try:
        fault = parse(line)
    except UsageError:
        return
    assert parse(text_of(fault)) == fault


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("kill worker count[0] at 3s", Fault("kill", ("worker count[0]",), AfterSecs(3))),
        ("kill node-1:6700 after 10000 acked", Fault("kill", ("node-1:6700",), AfterAcked(10000))),
        (
            "partition node-1 node-2 for 3s at 2s every 10s",
            Fault("partition", ("node-1", "node-2"), AfterSecs(2), every_secs=10, for_secs=3),
        ),
        (
            "drop 5% of data on node-1 -> node-2 for 10s",
            Fault("drop", ("node-1 -> node-2",), for_secs=10, probability=0.05, params={"frames": "data"}),
        ),
        ("kill random worker every 5s, 10 times", Fault("kill", ("random worker",), every_secs=5, times=10)),
        ("kill random every 500ms, 10 times", Fault("kill", ("random worker",), every_secs=0.5, times=10)),
        ("exception in count with probability 0.001", Fault("exception", ("count",), probability=0.001)),
        ("kill count, split at 1m", Fault("kill", ("count", "split"), AfterSecs(60))),
        ("drop", Fault("drop")),
        ("drop 5%", Fault("drop", probability=0.05)),
        ("slow split ms=5 for 10 s", Fault("slow", ("split",), for_secs=10, params={"ms": 5})),
        (' poison "my bolt" a=b equals="a b" ', Fault("poison", ('"my bolt"',), params={"a": "b", "equals": "a b"})),
        ("kill a at 0", Fault("kill", ("a",))),
        ("stop a for 3 at 2 every 4.5, 2 times", Fault("stop", ("a",), AfterSecs(2), 4.5, 2, 3)),
        ("stop with share=0.5 forking parent node-1", Fault("stop", ("forking-parent node-1",), params={"share": 0.5})),
    ],
)  # fmt: skip
def test_forms(line: str, fault: Fault) -> None:
    assert parse(line) == fault


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "it is empty"), ("-> a", "it begins with '->'"), ("3s kill", "it begins with '3s'"),
        ("kill a at", "a time after `at` is missing at the end"),
        ("kill a after 3", "time '3' after `after` has no unit; allowed: 3s, 3 acked"),
        ("kill a for 3 weeks", "unknown unit 'weeks'; units are ms, s, m, h"), ("kill a for 3d", "unknown unit 'd'"),
        ("kill a for -3s", "'-3s' is not understood"), ("kill a for 0s", "more than 0"), ("kill a for nans", "'nans'"),
        ("kill a for 1e999s", "more than 0 and at most"), ("kill a every for 3s", "'for' is not understood"),
        ("kill a 0 times", "the number of times is '0'; allowed: an integer from 1 up"),
        ("kill a -1 times", "the number of times is '-1'"), ("kill a 1e3 times", "the number of times is '1e3'"),
        ("kill a after 0 acked", "the number of acked messages is '0'"), ("kill a 101%", "probability is '101%'"),
        ("kill a with probability 1.5", "probability is '1.5'; allowed: 0 to 1, or 0% to 100%"),
        ("kill a with probability nan", "probability is 'nan'"), ("kill a with", "comes probability or NAME=VALUE"),
        ("kill a with luck", "not 'luck'"), ("kill a seed -1", "seed is '-1'; allowed"),
        ("kill a seed x", "seed is 'x'"),
        ("kill a at 1s at 2s", "the beginning is given twice"), ("kill a ms=1 ms=2", "ms is given twice"),
        ("kill a for 1s for 2s", "for is given twice"), ('kill "a', "a quote is not closed"),
        ("kill a ms=", "value ''"),
        ("kill of", "a kind of frames is missing"), ("kill a times", "the number of times is 'a'"),
    ],
)  # fmt: skip
def test_wrong_word_is_named(line: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("kind", CATALOGUE.values(), ids=lambda kind: kind.name)
def test_every_example_is_meant(kind: object) -> None:
    fault = parse(kind.example)  # type: ignore[attr-defined]
    assert CATALOGUE[fault.kind] is kind
    assert mistakes_of(fault) == []
