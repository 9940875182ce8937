"""The rules of a slot's history: each is broken once, and named; what really happens breaks none."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from squall.scheduler.common.messages import SlotChanged
from squall.scheduler.records.worker_ledger import BEGIN
from tests.history_rules import violations

BORN = SlotChanged("node-1", 6700, "words-1", 1, "started", 101, 10.0, slot_index=0)
READY = replace(BORN, at_monotonic_secs=10.1, event="ready")
DIED = replace(BORN, at_monotonic_secs=11.0, event="died", reason="killed by SIGKILL")
REBORN = replace(BORN, at_monotonic_secs=11.01, incarnation=2, pid=102)


def found(*steps: SlotChanged, max_deaths: int = 30) -> list[str]:
    return violations(sorted(steps, key=lambda step: step.at_monotonic_secs), max_deaths, 60.0)


STOPPED = replace(BORN, at_monotonic_secs=12.0, event="stopped")


@pytest.mark.parametrize(
    "steps",
    [
        (BORN, READY, DIED, REBORN, replace(REBORN, at_monotonic_secs=11.1, event="ready")),
        (BORN, READY, STOPPED, replace(REBORN, at_monotonic_secs=12.1)),
        # A refused fork ends a life that never began.
        (replace(DIED, at_monotonic_secs=9.0, pid=0, reason="cannot fork"), replace(BORN, incarnation=2)),
    ],
)
def test_a_life_a_death_and_a_replacement_break_no_rule(steps: tuple[SlotChanged, ...]) -> None:
    assert found(*steps) == []


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        ((BORN, replace(REBORN, at_monotonic_secs=10.5)), "pid 101, incarnation 1, has not ended"),
        ((BORN, DIED, replace(REBORN, incarnation=1)), "incarnation 1 was there before"),
        ((replace(BORN, incarnation=5), replace(DIED, incarnation=5), REBORN), "incarnation 5 was there before"),
        ((BORN, replace(REBORN, port=6701)), "the same work lives in node-1:6700, incarnation 1"),
        ((READY,), "it had not started"),
        ((BORN, DIED, READY, replace(READY, at_monotonic_secs=11.5)), "it had not started"),
        ((BORN, replace(DIED, pid=77)), "pid 101 lives there"),
        ((BORN, DIED, replace(DIED, at_monotonic_secs=11.005, event="failed"), REBORN), "it had been given up"),
    ],
)
def test_each_rule_is_named_when_it_is_broken(steps: tuple[SlotChanged, ...], what: str) -> None:
    (first, *_) = found(*steps)
    assert what in first


def test_more_restarts_than_allowed_are_named() -> None:
    steps = []
    for n in range(1, 7):
        born = replace(BORN, at_monotonic_secs=float(n), incarnation=n, pid=n)
        steps += [born, replace(born, at_monotonic_secs=n + 0.5, event="died")]
    assert found(*steps, max_deaths=5) == []
    steps.append(replace(BORN, at_monotonic_secs=7.0, incarnation=7, pid=7))
    assert [text.partition("started: ")[2] for text in found(*steps, max_deaths=5)] == [
        "6 deaths within 60 s; allowed: 5"
    ]
    assert found(*steps[:-1], replace(steps[-1], at_monotonic_secs=61.6), max_deaths=5) == []
    excused = [replace(step, excused=step.event == "died") for step in steps]
    assert found(*excused, max_deaths=5) == []


def test_adoption_is_the_same_life_and_deaths_without_a_supervisor_are_unknown() -> None:
    begin = SlotChanged("node-1", 0, "", 0, BEGIN, 9, 10.5)
    adopted = replace(BORN, at_monotonic_secs=10.6)
    assert found(BORN, begin, adopted, DIED, REBORN) == []
    assert found(BORN, begin, REBORN) == []
    other = replace(begin, node="node-2")
    assert found(BORN, other, replace(REBORN, at_monotonic_secs=10.7)) != []
