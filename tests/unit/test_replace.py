"""A topology that takes the place of another: Nimbus's decisions, and what it keeps on disk meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from squall import ClusterError, TopologyError, UsageError
from squall.ipc.rundir import RunDir
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.messages import (
    ComponentSummary,
    GetCluster,
    NamedTopology,
    RegisterSupervisor,
    SlotChanged,
    SlotRef,
    SubmitTopology,
    TopologyRecord,
)
from squall.scheduler.nimbus.decisions import REPLACE_RETRY_SECS, Instructions
from squall.scheduler.nimbus.instruction import (
    DeleteTopology,
    RemoveBoard,
    SendAssignNode,
    StoreAssignment,
    StoreTopology,
)
from squall.scheduler.nimbus.nimbus_files import NimbusFiles
from squall.scheduler.nimbus.topology_life import TopologyLife
from squall.scheduler.records.topology_files import left_by_earlier
from tests.unit.run_dirs import COMPONENTS, NimbusHere, files_of, nimbus_in
from tests.unit.test_nimbus_decisions import Cluster, kinds, request


def replace(cluster: Cluster, token: str = "0b0b0b0b", **changes: Any) -> tuple[TopologyRecord, Instructions]:
    return cluster.nimbus.submit(request(replace=True, **changes), cluster.now, 1.5e9, token)


def empty(cluster: Cluster, name: str = "x") -> None:
    for slot in cluster.slots(name):
        cluster.slot(slot, "stopped", name=name)


def one_of_two(workers: int = 2) -> Cluster:
    cluster = Cluster()
    cluster.submit(workers=workers)
    for slot in cluster.slots():
        cluster.slot(slot, "ready")
    return cluster


# ---- decisions ----


def test_the_successor_is_stored_with_the_end_of_the_one_before_and_begins_when_the_last_slot_is_empty() -> None:
    cluster = one_of_two()
    old = cluster.id()
    record, steps = replace(cluster, replace_wait_secs=7.0)
    assert record.id == "x-2-0b0b0b0b"
    ended = cluster.state.topology
    assert (ended.id, ended.status, ended.kill_wait_secs) == (old, "KILLED", 7.0)
    assert ended.successor is not None
    assert ended.successor.topology == record
    assert StoreTopology(ended) in steps
    assert kinds(steps) == [StoreTopology, StoreTopology, SendAssignNode, SendAssignNode]
    cluster.nimbus.drained(old, cluster.now)
    first, second = cluster.slots()
    assert cluster.slot(first, "stopped") == []
    assert kinds(cluster.slot(second, "stopped")) == [
        DeleteTopology, RemoveBoard, StoreTopology, StoreAssignment, SendAssignNode, SendAssignNode,
    ]
    assert cluster.state.topology == record


@pytest.mark.parametrize("changes", [
    {"conf": {"workers": 0}}, {"components": [ComponentSummary("s", "spout", 20_000, 1)]}, {"replace_wait_secs": -1.0},
])
def test_a_bad_successor_is_refused_before_anything_happens(changes: dict[str, Any]) -> None:
    cluster = one_of_two()
    before = cluster.state
    with pytest.raises((TopologyError, UsageError), match="allowed"):
        replace(cluster, **changes)
    assert cluster.state == before
    assert replace(cluster)[0].id == "x-2-0b0b0b0b", "no number was lost"


def test_it_comes_before_others_that_wait_for_slots() -> None:
    cluster = Cluster(nodes=1, ports=1)
    cluster.submit(workers=1)
    cluster.submit("later", workers=1)
    record, _ = replace(cluster, conf={"workers": 1}, replace_wait_secs=0.0)
    empty(cluster)
    assert cluster.slots() == [SlotRef("node-1", 6700)]
    assert cluster.slots("later") == []
    assert cluster.id() == record.id


# ---- files ----

NODE, PORTS, SECRET = "node-1", [6700, 6701], "k8s-token-of-mine"


def submit(here: NimbusHere, code: str = "one", **changes: Any) -> TopologyRecord:
    blob = CodeStore(here.run_dir.code).put(code.encode())
    fields: dict[str, Any] = {"name": "one", "conf": {"workers": 1}, "components": COMPONENTS, "sys_path": []}
    record: TopologyRecord = here.call("submit_topology", SubmitTopology(blob=blob, **{**fields, **changes}))
    return record


@contextmanager
def registered(run_dir: RunDir, holds: dict[int, str] | None = None) -> Iterator[NimbusHere]:
    """A Nimbus that knows the node."""
    with nimbus_in(run_dir.path) as here:
        here.call("register_supervisor", RegisterSupervisor(NODE, PORTS, os.getpid(), holds or {}))
        yield here


def stopped(here: NimbusHere, topology_id: str) -> None:
    here.hear(f"supervisor:{NODE}", SlotChanged(NODE, PORTS[0], topology_id, 1, "stopped", 1, 1.0))


def present(here: NimbusHere) -> TopologyRecord:
    record: TopologyRecord = here.call("get_topology", NamedTopology("one")).topology
    return record


def codes(run_dir: RunDir) -> set[bytes]:
    return {path.read_bytes() for path in run_dir.code.iterdir() if path.is_file()}


def keep_state(run_dir: RunDir) -> Path:
    """What tasks of an earlier one have kept, and what outlives them; returns the path of a position."""
    state = run_dir.topology_state("one")
    for name in ("numbers-0/position", "numbers-1/position", ".attempts/numbers-0", *LETTERS):
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text(name)
    return state / "numbers-0/position"


LETTERS = {".given-back/numbers-0", "dead-letters.jsonl"}


def kept(run_dir: RunDir) -> dict[str, bytes]:
    return files_of(run_dir.topology_state("one"))


def test_code_variables_and_state_of_a_successor_are_kept_through_the_death_of_nimbus(run_dir: RunDir) -> None:
    position = keep_state(run_dir)
    with registered(run_dir) as here:
        old = submit(here, env={"A": "old"})
        new = submit(here, "two", replace=True, env={"TOKEN": SECRET})
        here.tick()
    assert [name for name, data in files_of(run_dir.path).items() if SECRET.encode() in data] == [
        str(run_dir.environment(new.id).relative_to(run_dir.path))
    ]
    with registered(run_dir, {PORTS[0]: old.id}) as here:
        here.tick()
        assert codes(run_dir) == {b"one", b"two"}
        assert present(here).successor is not None
        here.nimbus.drained(old.id, 0.0)
        stopped(here, old.id)
        assert here.next_deadline() is not None
        here.tick()
        assert present(here) == new
        assert codes(run_dir) == {b"two"}
        assert not run_dir.environment(old.id).exists()
        assert SECRET in run_dir.environment(new.id).read_text()
        assert [path.name for path in run_dir.boards.iterdir()] == [new.id]
        assert here.sent[-1][1].slots[PORTS[0]].topology == new
    assert position.exists()


def test_a_fresh_one_finds_no_state_and_the_old_one_keeps_its_own_until_it_is_gone(run_dir: RunDir) -> None:
    position = keep_state(run_dir)
    with registered(run_dir) as here:
        old = submit(here)
        new = submit(here, "two", replace=True, fresh=True, replace_wait_secs=60.0)
        here.tick()
        assert position.exists()
        here.nimbus.drained(old.id, 0.0)
        stopped(here, old.id)
        here.tick()
        assert present(here) == new
        assert kept(run_dir).keys() == LETTERS
        assert not run_dir.set_aside("one", new.id).exists()


def test_state_that_cannot_be_moved_delays_a_fresh_one_and_nothing_is_lost(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep_state(run_dir)
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with registered(run_dir) as here:
        old = submit(here)
        new = submit(here, "two", replace=True, fresh=True, replace_wait_secs=0.0)
        in_the_way = run_dir.set_aside("one", new.id)
        in_the_way.touch()
        stopped(here, old.id)
        here.tick()
        here.tick()
        in_the_way.unlink()
        assert present(here).id == old.id
        assert caplog.text.count(f"{new.id} waits: cannot set aside the state") == 1
        assert here.call("get_cluster", GetCluster()).free_slots == [SlotRef(NODE, PORTS[1])]
        now[0] += REPLACE_RETRY_SECS
        here.tick()
        assert present(here) == new


def test_a_fresh_submission_that_is_refused_leaves_the_state_alone(run_dir: RunDir) -> None:
    position = keep_state(run_dir)
    with registered(run_dir) as here:
        run_dir.boards.rmdir()
        with pytest.raises(ClusterError, match="cannot create status board"):
            submit(here, fresh=True)
        run_dir.boards.mkdir()
        with pytest.raises(UsageError, match="workers is 0"):
            submit(here, conf={"workers": 0}, fresh=True)
        submit(here)
        with pytest.raises(UsageError, match="a topology named 'one' is already running"):
            submit(here, fresh=True)
        assert position.exists()


# ---- state that is cast off: aside, then gone, or back as it was ----

RECORD, OTHER = (TopologyRecord(f"one-{number}-00000000", "one", "ACTIVE", {}, [], "", [], 0.0) for number in (1, 2))


def test_the_next_nimbus_sees_in_the_store_what_to_do(run_dir: RunDir) -> None:
    keep_state(run_dir)
    before, files = kept(run_dir), NimbusFiles(run_dir)
    files.set_state_aside("one", RECORD.id)
    assert left_by_earlier(run_dir, "one") == []
    files.tidy([TopologyLife(OTHER)], ())
    assert kept(run_dir) == before
    assert {path.name for path in left_by_earlier(run_dir, "one")} == {"numbers-0", "numbers-1", ".attempts"}
    files.set_state_aside("one", RECORD.id)
    files.tidy([TopologyLife(OTHER), TopologyLife(RECORD)], ())
    assert kept(run_dir).keys() == LETTERS


def test_what_has_come_meanwhile_is_not_overwritten(run_dir: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    position, files = keep_state(run_dir), NimbusFiles(run_dir)
    files.set_state_aside("one", RECORD.id)
    position.parent.mkdir()
    position.write_text("newer")
    files.tidy([], ())
    assert position.read_text() == "newer"
    aside = run_dir.set_aside("one", RECORD.id)
    assert (aside / "numbers-0/position").exists()
    assert f"the state in {aside} cannot be put back" in caplog.text


def test_what_cannot_be_set_aside_stays(run_dir: RunDir) -> None:
    keep_state(run_dir)
    run_dir.set_aside("one", RECORD.id).write_text("in the way")
    before = kept(run_dir)
    with pytest.raises(ClusterError, match="cannot set aside the state of an earlier one: "):
        NimbusFiles(run_dir).set_state_aside("one", RECORD.id)
    assert kept(run_dir) == before
