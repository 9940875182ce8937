"""Each death of a worker is counted once, however often it is told, and also where nobody was left to tell it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from squall.ipc.envelope import NO_NONCE
from squall.scheduler.common.messages import (
    Assignment,
    AssignNode,
    RegisterSupervisor,
    SlotChanged,
    SlotRef,
    TopologyRecord,
)
from squall.scheduler.nimbus import topology_life
from squall.scheduler.nimbus.topology_life import TopologyLife
from squall.scheduler.supervisor.nimbus_link import NimbusLink

SLOTS = [SlotRef("node-1", 6700), SlotRef("node-2", 6700)]
RECORD = TopologyRecord("t-1", "t", "ACTIVE", {}, [], "blob", [], 0.0)


def life() -> TopologyLife:
    return TopologyLife(RECORD, Assignment("t-1", 1, SLOTS, [[], []]))


def event(incarnation: int, name: str = "died", node: str = "node-1") -> SlotChanged:
    return SlotChanged(node, 6700, "t-1", incarnation, name, 0, 1.0, reason="killed")


def deaths(found: TopologyLife, events: Iterable[SlotChanged]) -> int:
    for one in events:
        found.slot_changed(one)
    return found.restarts_total


def test_a_death_that_is_told_again_counts_once() -> None:
    assert deaths(life(), [event(1), event(2), event(1), event(2), event(1, node="node-2")]) == 3


def test_also_when_it_is_not_kept_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology_life, "RESTARTS_KEPT", 2)
    found = life()
    assert deaths(found, [event(1), event(2), event(3), event(1), event(2)]) == 3
    again = TopologyLife(RECORD, found.assignment, found.state().restarts, found.restarts_total)
    assert deaths(again, [event(1), event(2), event(3), event(4)]) == 4


def test_who_was_ready_on_a_node_that_is_gone_has_died() -> None:
    found = life()
    deaths(found, [event(1, "ready"), event(2, "ready", "node-2"), event(1, "stopped")])
    (death,) = found.assign(RECORD, Assignment("t-1", 2, [SLOTS[0], SLOTS[0]], [[], []]), 5.0)
    assert (death.slot, death.incarnation, death.reason) == ("node-2:6700", 2, "died with its node")
    assert found.restarts_total == 1


class Wire:
    """A Nimbus that is there when it registers somebody, and reads nothing before."""

    socket = None

    def __init__(self) -> None:
        self.heard: list[SlotChanged] = []
        self.away = True
        self.answered_by = NO_NONCE

    def send_event(self, message: Any) -> bool:
        if not self.away and isinstance(message, SlotChanged):
            self.heard.append(message)
        return True

    def call(self, method: str, request: Any, answer: Any, timeout_secs: float) -> AssignNode:
        self.away = False
        return AssignNode([])


def test_a_nimbus_that_was_away_is_told_of_every_death(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = "squall.scheduler.supervisor.nimbus_link.ConnectionWatch"
    monkeypatch.setattr(watch, lambda socket: cast("Any", NoChanges()))
    wire = Wire()
    link = NimbusLink(cast("Any", wire), RegisterSupervisor("node-1", [6700], 1))
    for incarnation in (1, 2, 3):
        link.report(event(incarnation, "ready"))
        link.report(event(incarnation))
    assert link.tick(1.0, dict, lambda: [event(4, "started")]) is not None
    told = [(one.incarnation, one.event) for one in wire.heard]
    assert told == [(1, "died"), (2, "died"), (3, "died"), (4, "started")]


class NoChanges:
    def changes(self) -> list[bool]:
        return []
