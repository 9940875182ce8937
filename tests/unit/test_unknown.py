"""What Nimbus does not know it neither stops nor removes, until an operator says so."""

from __future__ import annotations

import os
import random

import pytest

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.board import READY, STOPPED, Board
from squall.ipc.rundir import RunDir
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.messages import (
    ForgetUnknown,
    KillTopology,
    RegisterSupervisor,
    SlotAssignment,
    SubmitTopology,
)
from squall.scheduler.nimbus.store import STORE_FILES, Store
from squall.scheduler.supervisor.death_judge import DeathJudge, DeathLimits
from squall.scheduler.supervisor.decisions import Supervisor
from squall.scheduler.supervisor.node_boards import NodeBoards
from squall.scheduler.supervisor.slot import Slot
from squall.scheduler.supervisor.worker_life import SlotAddress, SlotOptions
from tests.unit.run_dirs import COMPONENTS, NimbusHere, add_topology, files_of, nimbus_in


def registered(service: NimbusHere, holds: dict[int, str]) -> None:
    service.call("register_supervisor", RegisterSupervisor("node-1", [6700, 6701], 1, holds))


def test_a_store_that_lost_a_topology_costs_it_nothing(run_dir: RunDir) -> None:
    with Store(run_dir.nimbus_db) as store:
        one = add_topology(run_dir, store, "one", 1, os.getpid())
    for name in STORE_FILES:
        (run_dir.path / name).unlink(missing_ok=True)
    Store(run_dir.nimbus_db).close()  # an operator's copy, which is older
    there = {name for name in files_of(run_dir.path) if name.startswith(("boards/", "code/"))}
    with nimbus_in(run_dir.path) as service:
        registered(service, {6700: one.id})
        assert service.nimbus.cluster().unknown == [one.id]
        assert service.nimbus.assign_node("node-1").keep == [6700]
        assert [str(slot) for slot in service.nimbus.cluster().free_slots] == ["node-1:6701"]
        assert there == {name for name in files_of(run_dir.path) if name.startswith(("boards/", "code/"))}

        assert service.call("forget_unknown", ForgetUnknown()).ids == [one.id]
        assert service.nimbus.cluster().unknown == []
        assert service.nimbus.assign_node("node-1").keep == []
        assert service.sent[-1][0] == "supervisor:node-1"
        assert [name for name in files_of(run_dir.path) if name.startswith(("boards/", "code/"))] == []
    with nimbus_in(run_dir.path) as service:
        # It has not stopped yet, and that it is to be removed is known.
        registered(service, {6700: one.id})
        assert service.nimbus.cluster().unknown == []


def test_what_is_left_of_a_deleted_topology_is_removed(run_dir: RunDir) -> None:
    with Store(run_dir.nimbus_db) as store:
        one = add_topology(run_dir, store, "one", 1)
        two = add_topology(run_dir, store, "two", 2)
        store.delete_topology(one.id)
    Board.create(str(run_dir.board("x-1-00000000")), 1, 1).close()  # on which no worker was begun
    with nimbus_in(run_dir.path) as service:
        assert service.nimbus.cluster().unknown == []
        registered(service, {6700: one.id, 6701: two.id})
        assert service.nimbus.assign_node("node-1").keep == []
        assert [path.name for path in run_dir.boards.iterdir()] == [two.id]
        assert len(list(run_dir.code.iterdir())) == 2


def test_a_supervisor_goes_on_with_work_that_it_is_to_keep(run_dir: RunDir) -> None:
    with Store(run_dir.nimbus_db) as store:
        one = add_topology(run_dir, store, "one", 1)
        [(_, assignment, *_)] = store.topologies()
    assert assignment is not None
    judge = DeathJudge(DeathLimits(), random.Random(1))
    supervisor = Supervisor([
        Slot(SlotAddress(str(run_dir.path), "node-1", 6700), SlotOptions(), judge, lambda _: 0, lambda _: False)
    ])
    work = SlotAssignment(one, assignment, 0)
    supervisor.assign({6700: work}, 0.0)
    supervisor.forked(6700, 1, 77, 0.0)
    assert supervisor.holds() == {6700: one.id}
    assert supervisor.assign({}, 1.0, keep=[6700]) == []
    assert supervisor.slots[6700].target == work
    assert supervisor.assign({}, 2.0)


# ---- code of submissions under way ----


def test_nothing_is_swept_while_a_submission_is_under_way(run_dir: RunDir) -> None:
    codes = CodeStore(run_dir.code)
    with codes.held():
        archive = codes.put(b"modules")
        (run_dir.code / f".{archive}.0a0b0c0d").write_bytes(b"half")
        with Store(run_dir.nimbus_db) as store:
            add_topology(run_dir, store, "one", 1)
        with nimbus_in(run_dir.path) as service:
            kill_and_end(service, "one")
            assert archive in codes
            assert (run_dir.code / f".{archive}.0a0b0c0d").exists()
            assert service.next_deadline() is not None
    with nimbus_in(run_dir.path) as service:
        assert service.next_deadline() is None
    assert list(run_dir.code.iterdir()) == []


def kill_and_end(service: NimbusHere, name: str) -> None:
    service.call("kill_topology", KillTopology(name, 0.0))
    service.tick()  # its node is not there to say so: it is seen that no worker lives
    assert service.nimbus.cluster().topologies == []


@pytest.mark.parametrize(("missing", "error", "words"), [
    ("blob", UsageError, "is not in the code store"),
    ("archive", UsageError, "is not in the code store"),
    ("cut archive", ClusterError, "is damaged"),
])
def test_a_submission_without_all_its_code_is_refused(
    run_dir: RunDir, missing: str, error: type[Exception], words: str
) -> None:
    codes = CodeStore(run_dir.code)
    blob, archive = codes.put(b"blob"), codes.put(b"archive")
    request = SubmitTopology("x", {"workers": 1}, COMPONENTS, blob, [str(codes.path(archive)), "lib"], "ACTIVE", False)
    with codes.held(), Store(run_dir.nimbus_db), nimbus_in(run_dir.path) as service:
        service.call("submit_topology", request)
        if missing == "cut archive":
            codes.path(archive).write_bytes(b"arch")
        else:
            codes.path(blob if missing == "blob" else archive).unlink()
        with pytest.raises(error, match=words):
            service.call("submit_topology", request)


def test_a_supervisor_maps_the_board_that_was_made_anew(run_dir: RunDir) -> None:
    with Store(run_dir.nimbus_db) as store:
        one = add_topology(run_dir, store, "one", 1, os.getpid())
        [(_, assignment, *_)] = store.topologies()
    assert assignment is not None
    boards, work = NodeBoards(run_dir), SlotAssignment(one, assignment, 0)
    assert boards.admit(work).incarnation == 2
    run_dir.board(one.id).unlink()
    assert boards.admit(work).incarnation == 2
    assert boards.admit(work).state == READY
    with nimbus_in(run_dir.path):
        pass
    # Of the living worker, which ends by itself; its successor has a number of its own.
    assert boards.admit(work).incarnation == 2
    assert boards.admit(work).state == STOPPED
    boards.keep_only(())
