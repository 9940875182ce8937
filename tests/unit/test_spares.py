"""Which topologies of a node get a spare, and when."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from squall.scheduler.supervisor.decisions import REST_SECS, Spares
from squall.scheduler.supervisor.worker_life import SlotState


def slot(topology: str, state: SlotState = SlotState.RUNNING, warm_spare: bool = True) -> Any:
    work = SimpleNamespace(topology=SimpleNamespace(id=topology, conf={"warm_spare": warm_spare}))
    return SimpleNamespace(target=work, work=work, state=state)


def looks(spares: Spares, slots: list[Any], *times: float) -> list[list[str] | None]:
    """The topologies that have a spare from each of these times on; None: as before."""
    found = [spares.look(slots, at) for at in times]
    return [None if kept is None else [record.id for record in kept] for kept in found]


def test_a_spare_is_made_once_all_workers_have_rested_and_ends_with_the_work() -> None:
    spares, late = Spares(), slot("a", SlotState.STARTING)
    slots = [slot("a"), late, slot("b"), slot("off", warm_spare=False)]
    assert looks(spares, slots, 0, 1, 2, 3) == [None, ["b"], None, None]
    late.state = SlotState.RUNNING
    assert looks(spares, slots, 4, 4 + REST_SECS / 2, 5, 6) == [None, None, ["a", "b"], None]
    spares.ended("a", "", 7)
    assert looks(spares, slots, 7, 8, 9) == [None, ["a", "b"], None]
    assert looks(spares, slots[2:], 10, 11) == [["b"], None]
    spares.all_ended()
    assert looks(spares, slots[2:], 12, 13) == [None, ["b"]]


def test_one_that_always_ends_is_made_ever_more_rarely_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    spares, asked = Spares(), []
    with caplog.at_level(logging.WARNING):
        for now in range(4 * 3600):
            if looks(spares, [slot("a")], now) == [["a"]]:
                asked.append(now)
                spares.ended("a", "ImportError", now)
    assert asked[1] - asked[0] < 10
    assert asked[-1] - asked[-2] >= 3600
    assert len(asked) < 12
    assert [record.getMessage() for record in caplog.records] == [
        "a has no spare, so a replacement loads its code first: ImportError"
    ]
