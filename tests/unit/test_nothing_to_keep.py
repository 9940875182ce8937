"""Nimbus writes to its store only what is to be kept: a full disk, which ends it, must find it writing a change."""

from __future__ import annotations

from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import NamedTopology, RegisterSupervisor
from squall.scheduler.nimbus.store import Store
from tests.unit.run_dirs import add_topology, nimbus_in


def test_a_supervisor_that_registers_is_no_change(run_dir: RunDir) -> None:
    with Store(run_dir.nimbus_db) as store:
        one = add_topology(run_dir, store, "one", 1)
    with nimbus_in(run_dir.path) as service:
        before = run_dir.nimbus_db.read_bytes()
        wanted = service.call("register_supervisor", RegisterSupervisor("node-1", [6700], 1, {6700: one.id}))
        assert list(wanted.slots) == [6700]
        assert run_dir.nimbus_db.read_bytes() == before
        service.call("deactivate", NamedTopology("one"))
        assert run_dir.nimbus_db.read_bytes() != before
