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
BEGIN_AGAIN = SlotChanged("node-1", 0, "", 0, BEGIN, 9, 10.5)
STOPPED = replace(BORN, at_monotonic_secs=12.0, event="stopped")


def broken(*steps: SlotChanged) -> list[str]:
    return violations(sorted(steps, key=lambda step: step.at_monotonic_secs), 1, 60.0)



@pytest.mark.parametrize(
    "steps",
    [
        (BORN, READY, DIED, REBORN, replace(REBORN, at_monotonic_secs=11.1, event="ready")),
        (BORN, READY, STOPPED, replace(REBORN, at_monotonic_secs=12.1)),
        # Who adopts a worker of a supervisor that is gone goes on with the same life.
        (BORN, BEGIN_AGAIN, replace(BORN, at_monotonic_secs=10.6), DIED, REBORN),
        # A refused fork ends a life that never began.
        (replace(DIED, at_monotonic_secs=9.0, pid=0, reason="cannot fork"), replace(BORN, incarnation=2)),
    ],
)
def test_a_life_a_death_and_a_replacement_break_no_rule(steps: tuple[SlotChanged, ...]) -> None:
    assert broken(*steps) == []


@pytest.mark.parametrize(
    ("steps", "broken_rule"),
    [
        ((BORN, replace(REBORN, at_monotonic_secs=10.5)), "pid 101, incarnation 1, has not ended"),
        ((BORN, DIED, replace(REBORN, incarnation=1)), "incarnation 1 was there before"),
        ((replace(BORN, incarnation=5), replace(DIED, incarnation=5), REBORN), "incarnation 5 was there before"),
        ((BORN, replace(REBORN, port=6701)), "the same work lives in node-1:6700, incarnation 1"),
        ((READY,), "it had not started"),
        ((BORN, DIED, READY, replace(READY, at_monotonic_secs=11.5)), "it had not started"),
        ((BORN, replace(DIED, pid=77)), "pid 101 lives there"),
        ((BORN, DIED, replace(DIED, at_monotonic_secs=11.005, event="failed"), REBORN), "it had been given up"),
        (
            (BORN, DIED, REBORN, replace(REBORN, at_monotonic_secs=12.0, event="died"),
             replace(REBORN, at_monotonic_secs=13.0, incarnation=3)),
            "2 deaths within 60 s; allowed: 1",
        ),
    ],
)
def test_each_rule_is_named_when_it_is_broken(steps: tuple[SlotChanged, ...], broken_rule: str) -> None:
    (first, *_) = broken(*steps)
    assert broken_rule in first
