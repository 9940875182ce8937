"""An assignment counts for a supervisor only if the Nimbus with which it is registered has sent it since; and Nimbus
waits for the end of what was begun by an older one. For Nimbus, only the youngest supervisor of a node counts."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from squall.engine.errors import ClusterError
from squall.ipc.control import Incoming
from squall.ipc.envelope import NO_NONCE, Nonce
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import (
    AssignNode,
    NamedTopology,
    RegisterSupervisor,
    SlotChanged,
    SupervisorHeartbeat,
)
from squall.scheduler.nimbus.known import NODE_TIMEOUT_SECS
from squall.scheduler.nimbus.store import Store
from squall.scheduler.supervisor.nimbus_link import (
    NIMBUS_PATIENCE_SECS,
    REGISTER_RETRY_SECS,
    Departure,
    NimbusLink,
)
from tests.unit.run_dirs import add_topology, nimbus_in

FIRST, SECOND = b"1" * 16, b"2" * 16
"""Sessions of one Nimbus and the next."""


class Line:
    """Supervisor's end of a connection whose frames are made here."""

    socket = None

    def __init__(self) -> None:
        self.events: deque[Incoming] = deque()
        self.answered_by = NO_NONCE
        self.answer: Nonce | None = None
        """Of the next answer; None: there is none in time."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Called while a call waits."""
        self.connected: list[bool] = []
        """News of the connection."""
        self.heard: list[tuple[int, str]] = []
        """Of slots, by a Nimbus that has answered: it reads nothing before."""

    def changes(self) -> list[bool]:
        news, self.connected = self.connected, []
        return news

    def come(self, session: bytes, sequence: int) -> None:
        """An order."""
        body = msgspec.msgpack.encode(AssignNode({}))
        self.events.append(Incoming("nimbus", "event", "AssignNode", 0, body, b"", Nonce(session, sequence)))

    def send_event(self, message: Any) -> bool:
        if isinstance(message, SlotChanged) and self.answered_by != NO_NONCE:
            self.heard.append((message.incarnation, message.event))
        return True

    def call(self, method: str, request: Any, answer: Any, timeout_secs: float) -> AssignNode:
        self.meanwhile()
        if self.answer is None:
            raise ClusterError("no answer")
        self.answered_by = self.answer
        return AssignNode({})

    def recv_event(self) -> Incoming | None:
        return self.events.popleft() if self.events else None


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def link(line: Line, monkeypatch: pytest.MonkeyPatch) -> NimbusLink:
    monkeypatch.setattr("squall.scheduler.supervisor.nimbus_link.ConnectionWatch", lambda socket: line)
    return NimbusLink(cast("Any", line), RegisterSupervisor("node-1", [6700], 1))


@pytest.fixture
def registered(line: Line, link: NimbusLink) -> NimbusLink:
    """With the first Nimbus, at 1.0."""
    line.answer = Nonce(FIRST, 7)
    assert tick(link, 1.0)
    return link


def tick(link: NimbusLink, now: float) -> bool:
    """Whether it has registered."""
    return link.tick(now, dict, list) is not None


def orders(link: NimbusLink) -> list[int]:
    return [event.nonce.sequence for event in iter(link.recv_event, None)]


def test_orders_of_the_nimbus_before_do_not_count(line: Line, registered: NimbusLink) -> None:
    line.come(FIRST, 8)
    assert orders(registered) == [8]
    # Now this process is stopped, and finds all that has happened in one moment.
    line.come(FIRST, 9)
    line.connected, line.answer = [False, True], Nonce(SECOND, 1)
    assert tick(registered, 9.0)
    line.come(SECOND, 2)
    assert orders(registered) == [2]


def test_orders_that_the_answer_has_overtaken_do_not_count(line: Line, registered: NimbusLink) -> None:
    line.answer = Nonce(FIRST, 9)
    line.meanwhile = lambda: line.come(FIRST, 8)
    registered.ask_to_leave(Departure(2.0, 30.0), 2.0)
    assert tick(registered, 2.0)
    line.come(FIRST, 10)
    assert orders(registered) == [10]


@pytest.mark.parametrize("connected", [[False], [False, True], []])
def test_without_an_answer_no_order_counts(line: Line, registered: NimbusLink, connected: list[bool]) -> None:
    """The next Nimbus may have heard what the node holds, and may count on it, though its answer came too late."""
    if not connected:
        registered.ask_to_leave(Departure(9.0, 30.0), 9.0)
    line.connected, line.answer = connected, None
    line.meanwhile = lambda: line.come(SECOND, 2)
    assert not tick(registered, 9.0)
    line.come(FIRST, 8)
    assert orders(registered) == []
    line.connected, line.answer = [True], Nonce(SECOND, 4)
    assert tick(registered, 9.0 + REGISTER_RETRY_SECS)
    line.come(SECOND, 5)
    assert 5 in orders(registered)


def test_a_nimbus_that_was_away_is_told_of_every_death(line: Line, link: NimbusLink) -> None:
    def step(incarnation: int, event: str) -> SlotChanged:
        return SlotChanged("node-1", 6700, "t-1", incarnation, event, 9, 1.0)

    line.answer = Nonce(FIRST, 1)
    for incarnation in (1, 2, 3):
        link.report(step(incarnation, "ready"))
        link.report(step(incarnation, "died"))
    assert link.tick(1.0, dict, lambda: [step(4, "started")]) is not None
    assert line.heard == [(1, "died"), (2, "died"), (3, "died"), (4, "started")]


# ---- a supervisor that leaves ----


def test_who_leaves_waits_until_nimbus_knows_and_the_slots_are_empty_and_not_for_ever() -> None:
    departure = Departure(100.0, 30.0)
    # Nothing to do: but Nimbus must hear of it first, or it would give the node work.
    assert not departure.is_over(100.0, idle=True)
    # Without Nimbus it does not wait for the drain.
    assert departure.next_deadline == 100.0 + NIMBUS_PATIENCE_SECS
    assert departure.is_over(departure.next_deadline, idle=False)
    departure.answered()
    assert departure.is_over(120.0, idle=True)
    # At the limit Nimbus stops the workers, which takes a moment.
    assert not departure.is_over(130.0, idle=False)
    assert departure.is_over(departure.next_deadline, idle=False)
    assert departure.next_deadline <= 130.0 + NIMBUS_PATIENCE_SECS


# ---- supervisors that have died ----

OLD = RegisterSupervisor("node-1", [6700], 7, {}, 30.0, started_ticks=100)
YOUNG = RegisterSupervisor("node-1", [6700], 8, {}, started_ticks=250)


def test_nothing_counts_that_a_dead_supervisor_has_sent(run_dir: RunDir) -> None:
    """It had asked to leave: its node would get no work any more."""
    with Store(run_dir.nimbus_db) as store:
        topology = add_topology(run_dir, store, "one", 1)
    ready = SlotChanged("node-1", 6700, topology.id, 3, "ready", 9, 1.0)
    with nimbus_in(run_dir.path) as service:
        service.call("register_supervisor", OLD, Nonce(FIRST, 1))
        service.call("register_supervisor", YOUNG, Nonce(SECOND, 1))
        text = "the supervisor of node-1 with pid 7 is not registered: the one with pid 8 was started later, and is"
        with pytest.raises(ClusterError, match=text):
            service.call("register_supervisor", OLD, Nonce(FIRST, 2))
        assert (service.nimbus.cluster().leaving, service.nimbus.supervisor_pids) == ([], {"node-1": 8})
        for nonce, state in ((Nonce(FIRST, 3), "starting"), (Nonce(SECOND, 2), "ready")):
            service.hear("supervisor:node-1", ready, nonce)
            assert service.call("get_topology", NamedTopology("one")).workers == {"node-1:6700": state}

        silent_at = time.monotonic() + NODE_TIMEOUT_SECS
        service.nimbus.tick(silent_at)
        for nonce, gone in ((Nonce(FIRST, 6), ["node-1"]), (Nonce(SECOND, 3), [])):
            service.hear("supervisor:node-1", SupervisorHeartbeat("node-1", 1.0), nonce)
            assert service.nimbus.cluster().gone == gone
