"""What Nimbus does with a fault: refused in one line, or on record, in the file, and known to who carries it out."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.board import HEADER_FAULTS, READY, Board
from squall.ipc.rundir import RunDir
from squall.scheduler.common import process
from squall.scheduler.common.messages import (
    FaultsChanged,
    HealFaults,
    InjectFault,
    RegisterSupervisor,
    Shutdown,
    TopologyRecord,
)
from squall.scheduler.faults.in_force import KEPT_SECS, WORKERS, FaultInForce, faults_now, read_faults, read_record
from squall.scheduler.faults.sentence import Fault, text_of
from squall.scheduler.nimbus import injection
from squall.scheduler.nimbus.store import Store
from tests.unit.run_dirs import NimbusHere, add_topology, nimbus_in
from tests.unit.waiting_child import waiting_child


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with waiting_child() as made:
        yield made


@pytest.fixture
def topology(run_dir: RunDir, child: subprocess.Popen[bytes]) -> TopologyRecord:
    """Its one worker is the child."""
    with Store(run_dir.nimbus_db) as store:
        made = add_topology(run_dir, store, "one", 1)
    board = Board.attach(run_dir.board(made.id))
    board.set_slot(0, 2, READY, child.pid, process.start_time_ticks(child.pid))
    board.close()
    return made


@contextmanager
def known(run_dir: RunDir, topology: TopologyRecord) -> Iterator[NimbusHere]:
    """A Nimbus with which the node has registered."""
    with nimbus_in(run_dir.path) as service:
        service.call("register_supervisor", RegisterSupervisor("node-1", [6700], 1, {6700: topology.id}))
        yield service


@pytest.fixture
def nimbus(run_dir: RunDir, topology: TopologyRecord) -> Iterator[NimbusHere]:
    run_dir.keeper_lock.touch()
    with known(run_dir, topology) as service:
        yield service


def inject(nimbus: NimbusHere, kind: str, *targets: str, **other: Any) -> list[FaultInForce]:
    return nimbus.call("inject", InjectFault(text_of(Fault(kind, targets, **other)))).faults  # type: ignore[no-any-return]


def events(run_dir: RunDir) -> list[tuple[str, int, str]]:
    return [(event["event"], event["id"], event["kind"]) for event in read_record(run_dir)]


def test_a_kill_is_on_record_with_whom_it_hits(
    nimbus: NimbusHere, run_dir: RunDir, child: subprocess.Popen[bytes]
) -> None:
    [told] = inject(nimbus, "kill", "node-1:6700")
    assert child.wait(10) == -9
    begin, end = read_record(run_dir)
    [victim] = begin["victims"]
    assert msgspec.to_builtins(told.victims) == [victim]
    assert (victim["name"], victim["pid"], victim["incarnation"]) == ("node-1:6700", child.pid, 2)
    assert (begin["event"], end["event"], end["healed"]) == ("begin", "end", False)
    assert read_faults(run_dir) == [], "what is over at once is not in force"
    with pytest.raises(ClusterError, match="worker node-1:6700 is not there now"):
        inject(nimbus, "kill", "node-1:6700")


def test_a_stop_is_the_supervisors(nimbus: NimbusHere, run_dir: RunDir, child: subprocess.Popen[bytes]) -> None:
    [told] = inject(nimbus, "stop", "node-1:6700")
    assert told.carrier == "node-1"
    assert told.ends_secs - told.began_secs == pytest.approx(3.0), "the catalogue's default"
    assert ("supervisor:node-1", FaultsChanged()) in nimbus.sent
    assert [fault.id for fault in faults_now(run_dir, time.monotonic())] == [told.id]
    assert not process.is_stopped(child.pid), "nobody has read the file"


def test_workers_are_told_by_a_word(nimbus: NimbusHere, run_dir: RunDir, topology: TopologyRecord) -> None:
    board = Board.attach(run_dir.board(topology.id))
    told = [board.words[HEADER_FAULTS]]
    [slow] = inject(nimbus, "slow", "numbers", params={"ms": "3"}, for_secs=4.0)
    told.append(board.words[HEADER_FAULTS])
    assert (slow.carrier, slow.topology_id, slow.tasks) == (WORKERS, topology.id, [1])
    [links] = inject(nimbus, "drop", probability=0.1)
    assert links.id == slow.id + 1
    told.append(board.words[HEADER_FAULTS])
    nimbus.call("heal", HealFaults())
    assert [*told, board.words[HEADER_FAULTS]] == [told[0] + number for number in range(4)]
    board.close()


def test_to_heal_is_to_end_now(nimbus: NimbusHere, run_dir: RunDir) -> None:
    inject(nimbus, "slow", "numbers")
    inject(nimbus, "stop", "node-1:6700")
    for asked, healed, left in ((["node-1:6700"], ["stop"], ["slow"]), ([], ["slow"], []), ([], [], [])):
        assert [fault.kind for fault in nimbus.call("heal", HealFaults(asked)).faults] == healed
        assert [fault.kind for fault in faults_now(run_dir, time.monotonic())] == left
    assert events(run_dir)[2:] == [("end", 2, "stop"), ("end", 1, "slow")]


def test_ends_are_noted_once_and_forgotten_later(nimbus: NimbusHere, run_dir: RunDir) -> None:
    [told] = inject(nimbus, "slow", "numbers")
    faults = nimbus.faults
    assert faults.next_deadline(told.began_secs) == told.ends_secs
    faults.tick(told.ends_secs)
    faults.tick(told.ends_secs + 1)
    assert events(run_dir) == [("begin", 1, "slow"), ("end", 1, "slow")]
    assert read_faults(run_dir) != [], "a supervisor that was away may still have to undo it"
    faults.tick(told.ends_secs + KEPT_SECS)
    assert not run_dir.faults_in_force.exists()
    assert faults.next_deadline(told.ends_secs + KEPT_SECS) is None


def test_the_next_nimbus_goes_on_with_what_is_there(run_dir: RunDir, topology: TopologyRecord) -> None:
    with known(run_dir, topology) as first:
        inject(first, "slow", "numbers")
    with known(run_dir, topology) as second:
        assert len(second.call("heal", HealFaults()).faults) == 1
    with nimbus_in(run_dir.path) as third:
        third.faults.tick(time.monotonic())
    assert events(run_dir) == [("begin", 1, "slow"), ("end", 1, "slow")]


@pytest.mark.parametrize("text", [b"", b'[{"id": "x"}]', b"\xff"])
def test_a_damaged_file_keeps_nobody_from_starting(run_dir: RunDir, topology: TopologyRecord, text: bytes) -> None:
    run_dir.faults_in_force.write_bytes(text)
    with pytest.raises(ClusterError, match="is damaged"):
        read_faults(run_dir)
    with known(run_dir, topology) as nimbus:
        inject(nimbus, "slow", "numbers")
        assert len(read_faults(run_dir)) == 1


def test_what_cannot_be_put_on_record_is_not_begun(
    nimbus: NimbusHere, run_dir: RunDir, child: subprocess.Popen[bytes]
) -> None:
    run_dir.fault_record.mkdir()
    with pytest.raises(ClusterError, match="kill is not begun"):
        inject(nimbus, "kill", "node-1:6700")
    assert child.poll() is None


def test_a_full_disk_begins_nothing_ends_nothing_and_ends_nobody(
    nimbus: NimbusHere, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    [told] = inject(nimbus, "slow", "numbers")
    with monkeypatch.context() as full:
        full.setattr(injection, "write_faults", Mock(side_effect=ClusterError("no room")))
        for ask in (partial(inject, nimbus, "drop", probability=0.5), partial(nimbus.call, "heal", HealFaults())):
            with pytest.raises(ClusterError, match="no room"):
                ask()
        assert [fault.id for fault in faults_now(run_dir, time.monotonic())] == [told.id]
        nimbus.faults.tick(told.ends_secs + KEPT_SECS)
        assert nimbus.faults.next_deadline(told.ends_secs + KEPT_SECS) is None
    both = [(1, "slow"), (2, "drop")]
    assert sorted(events(run_dir)) == [(event, *fault) for event in ("begin", "end") for fault in both]


def test_a_record_that_was_damaged_keeps_nobody_from_starting(run_dir: RunDir, topology: TopologyRecord) -> None:
    lines = ["{", "[]", "7", '{"event": "begin"}', '{"event": "begin", "id": "x"}', "[" * 100_000]
    lines.append('{"event": "end", "id": 4}')
    run_dir.fault_record.write_text("\n".join([*lines, '{"event": "begin", "id": 4, "kind": "slow"}', "cut"]))
    assert [event["id"] for event in read_record(run_dir)] == [4, 4]
    with known(run_dir, topology) as nimbus:
        assert inject(nimbus, "slow", "numbers")[0].id == 5


def test_a_cluster_that_stops_is_mended_first(nimbus: NimbusHere, run_dir: RunDir) -> None:
    inject(nimbus, "slow", "numbers")
    nimbus.call("shutdown", Shutdown(1.0, 5.0))
    assert faults_now(run_dir, time.monotonic()) == []
    with pytest.raises(UsageError):
        inject(nimbus, "slow", "numbers")


def test_a_node_of_a_topology_is_known_before_its_supervisor_has_registered(
    run_dir: RunDir, topology: TopologyRecord
) -> None:
    run_dir.keeper_lock.touch()
    with nimbus_in(run_dir.path) as started_again:
        with pytest.raises(ClusterError, match="the supervisor node-1 is not there now"):
            inject(started_again, "kill", "supervisor node-1")
        with pytest.raises(UsageError, match="there is no node 'node-2'; nodes are node-1"):
            inject(started_again, "kill", "supervisor node-2")


def test_nimbus_kills_itself_after_its_reply_and_needs_nobody(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[int] = []
    monkeypatch.setattr("signal.raise_signal", raised.append)
    with nimbus_in(run_dir.path) as alone:
        reply_secs = time.monotonic() + injection.LAST_REPLY_SECS
        inject(alone, "kill", "nimbus")
        alone.faults.tick(reply_secs)
        assert not raised
        alone.faults.tick(reply_secs + 1)
    assert raised == [9]
