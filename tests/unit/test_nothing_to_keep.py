"""Nimbus writes to its store only what is to be kept: a full disk, which ends it, must find it writing a change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from squall.ipc.rundir import RunDir
from squall.scheduler.messages import RegisterSupervisor
from squall.scheduler.store import Store
from tests.unit.run_dirs import add_topology, nimbus_in


@pytest.fixture
def run_dir() -> Iterator[RunDir]:
    made = RunDir.create()
    yield made
    made.remove()


def test_a_supervisor_that_registers_is_no_change(run_dir: RunDir) -> None:
    with Store(run_dir.nimbus_db) as store:
        one = add_topology(run_dir, store, "one", 1)
    with nimbus_in(run_dir.path) as service:
        sealed = (run_dir.path / "nimbus.seal").read_bytes()
        steps = service.nimbus.register_supervisor(RegisterSupervisor("node-1", [6700], 1, {6700: one.id}), 0.0)
        assert steps != []
        service._carry_out(steps)
        assert (run_dir.path / "nimbus.seal").read_bytes() == sealed
        _, steps = service.nimbus.deactivate("one")
        service._carry_out(steps)
        assert (run_dir.path / "nimbus.seal").read_bytes() != sealed
