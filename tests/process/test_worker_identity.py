"""Two workers of the same slot and incarnation, of different topologies: their supervisor tells them apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from squall.ipc.board import STARTING
from squall.ipc.control import ControlClient
from squall.ipc.rundir import assignment_tag
from squall.scheduler.common.messages import WorkerFailed, WorkerReady
from tests.process.fake_nimbus import NODE, FakeNimbus, fake_nimbus
from tests.process.scheduler_tools import slot_assignment


@pytest.fixture
def nimbus() -> Iterator[FakeNimbus]:
    with fake_nimbus() as made:
        yield made


def test_a_worker_of_another_topology_does_not_speak_for_the_slot(nimbus: FakeNimbus) -> None:
    nimbus.start("sleeper")
    nimbus.assign(p6700=slot_assignment(6700))
    nimbus.until_events("1 started")
    name = f"worker:{assignment_tag('former-1', 1)}:{NODE}:6700:1"
    stale = ControlClient(nimbus.run_dir.node_socket(NODE), nimbus.run_dir.key(), name)
    heard: list[str] = []

    def told_to_stop() -> bool:
        event = stale.recv_event()
        if event is not None:
            heard.append(event.method)
        return len(heard) == 2

    stale.send_event(WorkerReady(6700, 1, 77))
    stale.send_event(WorkerFailed(6700, 1, "its last words", ""))
    nimbus.until("both to be answered", told_to_stop)
    stale.close()
    assert heard == ["StopWorker", "StopWorker"]
    assert nimbus.cell()[:2] == (1, STARTING)
    assert nimbus.events() == ["1 started"]
