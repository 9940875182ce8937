"""Targets as people write them: what is written is what was read, and what is no target is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.engine.errors import UsageError
from squall.scheduler.faults.target import (
    ALL,
    DAEMONS,
    NAMED,
    RANDOM,
    LinkTarget,
    Sort,
    Target,
    parse_target,
    parse_targets,
)
from squall.scheduler.faults.words import RESERVED, name_of, name_text, words_of

names = st.one_of(
    st.text(min_size=1, max_size=12),
    st.sampled_from(["count", "node-1", "node-1:6700", "hello/count", "a->b", "->", "x,y", 'a"b', "\\", "a[0]", "5%"]),
    st.sampled_from(sorted(RESERVED)),
)
indices = st.integers(0, 999_999_999)
targets = st.one_of(
    st.builds(Target, st.just(Sort.NIMBUS)),
    st.builds(Target, st.sampled_from([*set(NAMED) - {Sort.TASK}, Sort.NAME]), names),
    st.builds(Target, st.sampled_from([Sort.TASK, Sort.WORKER]), names, indices),
    st.builds(Target, st.sampled_from(NAMED), which=st.just(ALL)),
    st.builds(Target, st.sampled_from(NAMED), which=st.just(RANDOM)),
    st.builds(Target, st.sampled_from(NAMED), names, st.none() | indices, which=st.just(RANDOM)),
)
links = st.builds(LinkTarget, targets, targets, st.booleans())


@given(names)
def test_every_name_can_be_written(name: str) -> None:
    (word,) = words_of(name_text(name))
    assert name_of(word) == (name, None)
    assert word not in RESERVED


@given(targets | links)
def test_what_is_written_is_read(target: Target | LinkTarget) -> None:
    assert parse_target(str(target)) == target


@given(st.lists(targets | links, min_size=1, max_size=4), st.sampled_from([" ", ", ", ","]))
def test_several_stand_in_a_row(several: list[Target | LinkTarget], between: str) -> None:
    assert parse_targets(words_of(between.join(map(str, several)))) == several


@given(st.text(max_size=40))
def test_any_text_is_a_target_or_refused(text: str) -> None:
    try:
        target = parse_target(text)
    except UsageError:
        return
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("node-1:6700", Target(Sort.NAME, "node-1:6700")),
        ("worker count[0]", Target(Sort.WORKER, "count", 0)),
        ("worker node-1:6700", Target(Sort.WORKER, "node-1:6700")),
        ("count[3]", Target(Sort.TASK, "count", 3)),
        ("task count[3]", Target(Sort.TASK, "count", 3)),
        ('"my bolt"[3]', Target(Sort.TASK, "my bolt", 3)),
        ('"count[3]"', Target(Sort.NAME, "count[3]")),
        ('"random"', Target(Sort.NAME, "random")),
        ("random", Target(Sort.WORKER, which=RANDOM)),
        ("random worker", Target(Sort.WORKER, which=RANDOM)),
        ("random worker of count", Target(Sort.WORKER, "count", which=RANDOM)),
        ("random forking parent", Target(Sort.FORKING_PARENT, which=RANDOM)),
        ("forking parent node-1", Target(Sort.FORKING_PARENT, "node-1")),
        ("supervisor node-2", Target(Sort.SUPERVISOR, "node-2")),
        ("nimbus", Target(Sort.NIMBUS)),
        ("all workers", Target(Sort.WORKER, which=ALL)),
        ("a->b", LinkTarget(Target(Sort.NAME, "a"), Target(Sort.NAME, "b"))),
        ("node-1<->node-2", LinkTarget(Target(Sort.NAME, "node-1"), Target(Sort.NAME, "node-2"), both=True)),
    ],
)
def test_forms(text: str, target: Target | LinkTarget) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no target"), ("a b", "is more than one target"), ("->", "a target is missing before '->'"),
        ("a ->", "a target is missing at the end"), (", a", "a target is missing before ','"),
        ("worker", "a target is missing at the end"), ("random worker of", "a target is missing at the end"),
        ("all wrokers", "'all wrokers' is unknown; allowed: all workers, components"), ("at", "'at' is no target"),
        ("task count", "task 'count' has no number"), ("node node-1[0]", "there is no node [0] of 'node-1'"),
        ('"a', "a quote is not closed"), ("a[x]", "'a[x]' is no name"), ("a[0]b", "'a[0]b' is no name"),
        ('""', "a name is empty"), ("a" * 5000, "has 5000 characters"), ("count[9999999999]", "is no name"),
    ],
)  # fmt: skip
def test_what_is_no_target_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


def test_daemons_have_a_form_each() -> None:
    assert {parse_target(f"{sort} node-1" if sort is not Sort.NIMBUS else sort) for sort in DAEMONS} == {
        Target(sort, "" if sort is Sort.NIMBUS else "node-1") for sort in DAEMONS
    }
