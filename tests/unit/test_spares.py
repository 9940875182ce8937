"""Which topologies of a node get a spare, and when."""

from __future__ import annotations

import logging
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
        self.spares = Spares()
        self.slots = list(slots)
        self.now = 0.0

    def look(self, secs: float = 1.0) -> list[str] | None:
        self.now += secs
        kept = self.spares.look(self.slots, self.now)
        return None if kept is None else [record.id for record in kept]


def test_a_spare_is_made_once_all_workers_have_rested_and_ends_with_the_work() -> None:
    late = slot("a", SlotState.STARTING)
    node = Node(slot("a"), late, slot("b"), slot("off", warm_spare=False))
    assert [node.look() for _ in range(5)] == [None, ["b"], None, None, None]
    late.state = SlotState.RUNNING
    assert [node.look(secs) for secs in (1, REST_SECS / 2, 1, 1)] == [None, None, ["a", "b"], None]
    del node.slots[:2]
    assert [node.look(), node.look()] == [["b"], None]


def test_another_is_made_after_it_became_a_worker_or_its_parent_ended() -> None:
    node = Node(slot("a"))
    assert [node.look(), node.look()] == [None, ["a"]]
    node.spares.ended("a", "", node.now)
    assert [node.look(), node.look(), node.look()] == [None, ["a"], None]
    node.spares.all_ended()
    assert [node.look(), node.look()] == [None, ["a"]]


def test_one_that_always_ends_is_made_ever_more_rarely_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(slot("a"))
    asked = []
    with caplog.at_level(logging.WARNING):
        while node.now < 4 * 3600:
            if node.look():
                asked.append(node.now)
                node.spares.ended("a", "ImportError", node.now)
    assert asked[1] - asked[0] < 10
    assert asked[-1] - asked[-2] >= 3600
    assert len(asked) < 12
    assert [record.getMessage() for record in caplog.records] == [
        "a has no spare, so a replacement loads its code first: ImportError"
    ]
