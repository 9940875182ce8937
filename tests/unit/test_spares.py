"""Which topologies of a node get a spare, and when."""

from __future__ import annotations

import logging
import random
from types import SimpleNamespace
from typing import Any

import pytest

from squall.scheduler.supervisor.spares import REST_SECS, Spares
from squall.scheduler.supervisor.worker_life import SlotState


def slot(topology: str, state: SlotState = SlotState.RUNNING, warm_spare: bool = True) -> Any:
    work = SimpleNamespace(topology=SimpleNamespace(id=topology, conf={"warm_spare": warm_spare}))
    return SimpleNamespace(target=work, work=work, state=state)


class Node:
    """Spares, looked at every second of a clock."""

    def __init__(self, *slots: Any) -> None:
        self.spares = Spares(random.Random(1))
        self.slots = list(slots)
        self.now = 0.0

    def look(self, secs: float = 1.0) -> tuple[list[str], list[str]]:
        self.now += secs
        due, gone = self.spares.look(self.slots, self.now)
        return [record.id for record in due], gone

    def asked_within(self, secs: int) -> int:
        return sum(len(self.look()[0]) for _ in range(secs))


def test_a_spare_is_made_once_all_workers_have_rested_and_ends_with_the_work() -> None:
    late = slot("a", SlotState.STARTING)
    node = Node(slot("a"), late, slot("off", warm_spare=False))
    assert node.asked_within(10) == 0
    late.state = SlotState.RUNNING
    assert node.look() == ([], [])
    assert node.look(REST_SECS / 2) == ([], [])
    assert node.look() == (["a"], [])
    assert node.look() == ([], [])
    node.slots.clear()
    assert node.look() == ([], ["a"])
    assert node.look() == ([], [])


def test_another_is_made_after_it_became_a_worker_or_its_parent_ended() -> None:
    node = Node(slot("a"))
    assert node.asked_within(3) == 1
    node.spares.ended("a", "", node.now)
    assert node.look() == ([], [])
    assert node.asked_within(3) == 1
    node.spares.all_ended()
    assert node.asked_within(3) == 1


def test_one_that_always_ends_is_made_ever_more_rarely_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(slot("a"))
    asked = []
    with caplog.at_level(logging.WARNING):
        while node.now < 4 * 3600:
            if node.look()[0]:
                asked.append(node.now)
                node.spares.ended("a", "ImportError", node.now)
    assert asked[1] - asked[0] < 5
    assert 4 <= len(asked) <= 8
    assert [record.getMessage() for record in caplog.records] == [
        "a has no spare worker, so a replacement imports its code first: ImportError"
    ]
