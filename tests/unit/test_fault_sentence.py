"""A fault in one line, and its targets: what is written is what was read, and a wrong word is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.engine.errors import UsageError
from squall.scheduler.faults.catalogue import CATALOGUE
from squall.scheduler.faults.resolution import check
from squall.scheduler.faults.sentence import Fault, LinkTarget, Target, parse, parse_target, text_of

characters = st.characters(exclude_categories=["Cs"])
hard_names = st.text(characters, min_size=1, max_size=12)
names = st.sampled_from(["count", "node-1", "node-1:6700", "hello/count", "my bolt", "a,b", 'a"b', "a'b", "5 %"])
tasks = st.builds("{}[{}]".format, names, st.integers(0, 999_999_999))
targets = st.one_of(
    st.sampled_from(["nimbus", "random worker"]).map(Target),
    st.builds(Target, st.just(""), names | tasks),
    st.builds(
        Target, st.sampled_from(["component", "node", "supervisor", "forking-parent", "worker", "random worker of"]),
        names | hard_names | tasks,
    ),
    st.builds(Target, st.just("task"), tasks),
)
links = st.builds(LinkTarget, targets, st.sampled_from(["->", "<->"]), targets)
secs = st.floats(0.001, 1e9)
counts = st.integers(1, 10**15 - 1)
values = st.text(characters, max_size=9)
whens = st.one_of(
    st.just({}), st.builds(lambda at: {"at_secs": at}, secs), st.builds(lambda n: {"after_acked": n}, counts)
)
faults = st.builds(
    lambda when, **given: Fault(**given, **when), whens, kind=st.sampled_from(sorted(CATALOGUE)),
    targets=st.lists((targets | links).map(str), max_size=3).map(tuple), every_secs=st.none() | secs,
    times=st.none() | counts, for_secs=st.none() | secs, probability=st.none() | st.floats(0, 1),
    params=st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_-]{0,5}", fullmatch=True), values, max_size=3),
    seed=st.none() | st.integers(0, 2**32 - 1),
)  # fmt: skip


@given(targets | links)
def test_a_target_that_is_written_is_read(target: Target | LinkTarget) -> None:
    assert parse_target(str(target)) == target


@given(faults)
def test_a_fault_that_is_written_is_read(fault: Fault) -> None:
    assert parse(text_of(fault)) == fault


WORDS = [
    "kill", "count", "at", "3s", "3", "after", "acked", "every", "times", ",", "for", "with", "5%", "of", "data", "->",
    "seed", "a=1", "random", "worker", '"x"', "probability", "1e999", "0", "supervisor", "count[0]", "<->", "task",
]  # fmt: skip


@given(st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join))
def test_any_line_is_a_fault_or_refused(line: str) -> None:
    try:
        fault = parse(line)
        check(fault)
    except UsageError:
        return
    assert parse(text_of(fault)) == fault


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("kill worker count[0] at 3s", Fault("kill", ("worker count[0]",), 3.0)),
        (
            "drop 5% of data on node-1 -> node-2 for 10s",
            Fault("drop", ("node-1 -> node-2",), for_secs=10.0, probability=0.05, params={"frames": "data"}),
        ),
        ("kill random every 500ms, 10 times", Fault("kill", ("random worker",), every_secs=0.5, times=10)),
        ('poison "my bolt" equals="a b, c"', Fault("poison", ("'my bolt'",), params={"equals": "a b, c"})),
    ],
)
def test_forms(line: str, fault: Fault) -> None:
    assert parse(line) == fault


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "it is empty"), ("-> a", "it begins with '->'"), ("3s kill", "it begins with '3s'"),
        ("kill a at", "`at` is written at TIME"), ("kill a ->", "a target is missing at the end"),
        ("kill a after 3", "`after` is written after COUNT acked or after TIME-WITH-UNIT"),
        ("kill a with probability 1.5", "probability is '1.5'; allowed: a number from 0 to 1"),
        ("kill a at 1s at 2s", "at_secs is given twice"),
        ('kill "a', "'kill \"a': no closing quotation; a name"), ("kill a for x", "'kill a for x': duration 'x'"),
        ("kill task count", "`task` is written task COMPONENT[NUMBER]"), ("kill a at 1s after 2 acked", "not both"),
        ("kil a", "fault 'kil' is unknown; did you mean kill?"), ("slow a mss=1", "slow has no parameter 'mss'"),
        ("slow a ms=0", "ms is '0'; allowed: a number from 0.001"), ("delay by=x", "by is 'x'; allowed: an integer"),
        ("kill a signal=HUP", "signal is 'HUP'; allowed: KILL, SEGV, ABRT"), ("poison a field=w", "exactly one of"),
        ("poison a equals=1", "poison needs field=..., text"), ("poison a field=w matches=(", "matches is '('"),
        ("kill a for 3s", "kill is over at once; it takes no `for`"), ("kill a 3 times", "need an `every`"),
        ("kill a with probability 0.5", "kill takes no probability"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(line: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(parse(line))
    assert said in str(caught.value)


@pytest.mark.parametrize("kind", CATALOGUE.values(), ids=lambda kind: kind.name)
def test_every_example_passes(kind: object) -> None:
    check(parse(kind.example))  # type: ignore[attr-defined]
