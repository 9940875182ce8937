"""Targets against a view: who is meant, and who is not there."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from squall.engine.errors import ClusterError, UsageError
from squall.scheduler.faults.catalogue import CATALOGUE
from squall.scheduler.faults.resolution import ANYBODY, Place, Resolved, View, resolve
from squall.scheduler.faults.sentence import parse

A, B, C = "node-1:6700", "node-1:6701", "node-2:6700"


def places(topology: str, **workers: list[str]) -> list[Place]:
    """The tasks of components. `workers`: of each."""
    number = iter(range(1, 100))
    return [
        Place(topology, component, next(number), worker) for component, tasks in workers.items() for worker in tasks
    ]


VIEW = View(("node-1", "node-2"), (A, B, C), places("words", lines=[A], split=[A, B], count=[B, C, B]))
TWO = replace(VIEW, places=[*VIEW.places, *places("other", count=[C])])
UNPLACED = View(("node-1",), (A,), places("words", count=["", ""]))


def found(kind: str, targets: str, view: View = VIEW, seed: int = 7) -> Resolved:
    return resolve(CATALOGUE[kind], parse(f"{kind} {targets}").targets, view, random.Random(seed))


def processes(targets: str, view: View = VIEW, seed: int = 7) -> list[str]:
    return [str(each).removeprefix("worker ") for each in found("kill", targets, view, seed).processes]


def tasks(targets: str) -> list[int]:
    return [place.task for place in found("slow", targets).tasks]


@pytest.mark.parametrize(
    ("targets", "meant"),
    [
        (A, [A]), ("node-1", [A, B]), ("node node-2", [C]), ("split", [A, B]),
        ("worker count", [B, C]), ("count[1]", [C]), ("words/count", [B, C]),
        ("supervisor node-2", ["supervisor node-2"]), (f"nimbus, {A}", ["nimbus", A]),
    ],
)  # fmt: skip
def test_processes(targets: str, meant: list[str]) -> None:
    assert processes(targets) == meant


@pytest.mark.parametrize(
    ("targets", "meant"),
    [
        ("count[1]", [5]), (A, [1, 2]), ("worker count[0]", [3, 4, 6]), ("node-2", [5]),
        ("split count[0]", [2, 3, 4]), ("node-1 node-2", [1, 2, 3, 4, 5, 6]),
    ],
)  # fmt: skip
def test_tasks(targets: str, meant: list[int]) -> None:
    assert sorted(tasks(targets)) == meant


@pytest.mark.parametrize(
    ("targets", "meant"),
    [
        ("", [(ANYBODY, ANYBODY)]),
        ("node-1 -> node-2", [("node-1", "node-2")]),
        ("node-1 <-> node-2", [("node-1", "node-2"), ("node-2", "node-1")]),
        (A, [(A, ANYBODY), (ANYBODY, A)]),
        ("split -> count", [(A, B), (A, C), (B, C)]),
        (f"{A} {B} {C}", [(A, B), (B, A), (A, C), (C, A), (B, C), (C, B)]),
    ],
)
def test_links(targets: str, meant: list[tuple[str, str]]) -> None:
    assert [(link.sender, link.receiver) for link in found("drop", targets).links] == meant


def test_nodes() -> None:
    for target in ("node-2", "forking-parent node-2"):
        assert found("fork-refused", target).processes == (("node", "node-2"),)


@pytest.mark.parametrize(
    ("targets", "among"),
    [
        ("random", {A, B, C}), ("random worker of lines", {A}), ("random worker of count", {B, C}),
        ("random worker on node-1", {A, B}),
    ],
)  # fmt: skip
def test_who_is_drawn_is_among_those_meant_and_by_seed(targets: str, among: set[str]) -> None:
    drawn = [processes(targets, seed=seed) for seed in range(60)]
    assert {name for names in drawn for name in names} == among
    assert drawn == [processes(targets, seed=seed) for seed in range(60)]


@pytest.mark.parametrize(
    ("kind", "targets", "said"),
    [
        ("kill", "cuont", "there is no worker, node or component 'cuont'; components are lines, split, count; workers"),
        ("kill", "worker node-3:1", "there is no worker 'node-3:1'; components are lines, split, count; workers are"),
        ("kill", "count[3]", "there is no task count[3]; the last one is count[2]"),
        ("kill", "a -> b", "kill takes no a -> b; it takes a worker"),
        ("kill", "", "kill needs a target: a worker"),
        ("slow", "nimbus", "slow takes no nimbus; it takes a component or a task"),
        ("drop", f"{A} -> {A}", "is the way from a worker to itself, which is no link"),
        ("fork-refused", "count", "fork-refused takes no component count; it takes a node"),
        ("kill", "random worker of x", "component 'x'"), ("fork-refused", "random", "takes no worker node-"),
    ],
)  # fmt: skip
def test_who_is_not_there_is_named(kind: str, targets: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        found(kind, targets)
    assert said in str(caught.value)


def test_name_of_two_things_is_refused_with_both_forms() -> None:
    both = replace(VIEW, places=[*VIEW.places, Place("words", "node-1", 9, C)])
    with pytest.raises(UsageError, match="'node-1' is a node and a component; write node node-1 or component node-1"):
        found("kill", "node-1", both)
    assert processes("component node-1", view=both) == [C]
    with pytest.raises(UsageError, match="'count' is in several topologies; write words/count or other/count"):
        found("kill", "count", TWO)
    assert processes("other/count", view=TWO) == [C]


def test_what_is_not_placed_is_known_but_not_there() -> None:
    lines = ("kill count", "slow count[1]", "kill worker count[0]", "kill random worker of count", f"drop count -> {A}")
    for fault in map(parse, lines):
        assert resolve(CATALOGUE[fault.kind], fault.targets, UNPLACED) == Resolved()
        with pytest.raises(ClusterError, match="there is no"):
            resolve(CATALOGUE[fault.kind], fault.targets, UNPLACED, random.Random(1))
