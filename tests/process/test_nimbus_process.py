"""A real Nimbus process, spoken to by real clients and by supervisors that exist only as far as Nimbus can see."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.board import Board
from squall.ipc.control import ControlClient
from squall.ipc.envelope import Sealer
from squall.ipc.run_parent import sweep_stale
from squall.ipc.rundir import RunDir
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.messages import (
    AssignNode,
    ComponentSummary,
    KillTopology,
    RegisterSupervisor,
    Shutdown,
    SlotAssignment,
    SlotChanged,
    SubmitTopology,
    TopologyRecord,
)
from tests.process.waiting import wait_for

DEADLINE_SECS = 30.0
COMPONENTS = [ComponentSummary("lines", "spout", 2, 2), ComponentSummary("__acker", "acker", 2, 2)]


class NimbusDaemon:
    """The process, its lifeline and its log."""

    def __init__(self, run_dir: RunDir, *arguments: str) -> None:
        self.run_dir = run_dir
        self.log = run_dir.path.parent / f"{run_dir.path.name}.log"
        lifeline, self.lifeline = os.pipe2(os.O_CLOEXEC)
        ready, ready_write = os.pipe2(os.O_CLOEXEC)
        options = ["--dir", str(run_dir.path), "--lifeline", str(lifeline), "--ready-fd", str(ready_write)]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "squall.scheduler.nimbus.main", *options, *arguments],
                pass_fds=(lifeline, ready_write),
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )
        os.close(lifeline)
        os.close(ready_write)
        self.told_ready = os.read(ready, 64)
        os.close(ready)

    def cut_lifeline(self) -> None:
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1

    def end(self) -> int:
        return self.process.wait(DEADLINE_SECS)

    def words(self) -> str:
        return self.log.read_text()

    def close(self) -> None:
        self.cut_lifeline()
        try:
            self.end()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.unlink()


class FakeSupervisor:
    """What Nimbus sees of a supervisor: a connection, and a process that lives until it is told to leave."""

    def __init__(self, run_dir: RunDir, node: str = "node-1", ports: tuple[int, ...] = (6700, 6701)) -> None:
        self.node = node
        self.process = subprocess.Popen(["sleep", "600"])
        self.control = ControlClient(run_dir.nimbus_socket, run_dir.key(), f"supervisor:{node}")
        self.ports = list(ports)

    def register(self) -> dict[int, SlotAssignment]:
        request = RegisterSupervisor(self.node, self.ports, self.process.pid)
        return self.control.call("register_supervisor", request, AssignNode, DEADLINE_SECS).slots

    def next_event(self) -> AssignNode | Shutdown:
        deadline = time.monotonic() + DEADLINE_SECS
        while (event := self.control.recv_event()) is None:
            if time.monotonic() > deadline:
                raise AssertionError(f"no event for {self.node} within {DEADLINE_SECS} s")
            self.control.socket.poll(100)
        return event.decode(Shutdown) if event.method == "Shutdown" else event.decode(AssignNode)

    def next_assignment(self) -> dict[int, SlotAssignment]:
        event = self.next_event()
        assert isinstance(event, AssignNode)
        return event.slots

    def say(self, port: int, topology_id: str, event: str, incarnation: int = 1) -> None:
        now = time.monotonic()
        self.control.send_event(SlotChanged(self.node, port, topology_id, incarnation, event, 1, now, "for the test"))

    def leave(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.leave()
        self.control.close(linger_secs=0)


@pytest.fixture
def nimbus(run_dir: RunDir) -> Iterator[NimbusDaemon]:
    with contextlib.closing(NimbusDaemon(run_dir)) as daemon:
        yield daemon


@pytest.fixture
def client(nimbus: NimbusDaemon, run_dir: RunDir) -> Iterator[NimbusClient]:
    with NimbusClient(run_dir) as made:
        yield made


@pytest.fixture
def supervisor(nimbus: NimbusDaemon, run_dir: RunDir) -> Iterator[FakeSupervisor]:
    with contextlib.closing(FakeSupervisor(run_dir)) as made:
        yield made


@pytest.fixture
def raw(run_dir: RunDir) -> Iterator[zmq.Socket[bytes]]:
    """A socket to Nimbus that sends whatever it is given."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as made:
        made.setsockopt(zmq.LINGER, 0)
        made.connect(f"ipc://{run_dir.nimbus_socket}")
        yield made


def submit(client: NimbusClient, run_dir: RunDir, name: str = "x", workers: int = 2) -> TopologyRecord:
    blob = CodeStore(run_dir.code).put(b"code")
    return client.submit_topology(SubmitTopology(name, {"workers": workers}, COMPONENTS, blob, ["lib"]))


# ---- a topology's life ----


def test_submit_assign_kill(client: NimbusClient, supervisor: FakeSupervisor, run_dir: RunDir) -> None:
    assert supervisor.register() == {}
    assert client.get_cluster().supervisors == {"node-1": [6700, 6701]}
    record = submit(client, run_dir)
    slots = supervisor.next_assignment()
    assert [slots[port].slot_index for port in (6700, 6701)] == [0, 1]
    assert slots[6700].topology == record
    board = Board.attach(str(run_dir.board(record.id)))
    assert (board.n_slots, board.n_tasks) == (2, 4)
    board.close()

    supervisor.say(6700, record.id, "ready")
    supervisor.say(6700, record.id, "died")
    supervisor.say(6700, record.id, "ready", incarnation=2)
    wait_for("the death is known", lambda: client.get_topology("x").restarts_total == 1)
    wait_for("the replacement is ready", lambda: client.get_topology("x").workers["node-1:6700"] == "ready")
    assert client.get_topology("x").restarts[0].ready_after_secs is not None

    assert client.deactivate("x").status == "INACTIVE"
    assert supervisor.next_assignment()[6700].topology.status == "INACTIVE"
    assert client.activate("x").status == "ACTIVE"
    supervisor.next_assignment()

    assert client.kill_topology("x").status == "KILLED"
    assert supervisor.next_assignment() == {}
    assert client.get_cluster().free_slots == []
    with pytest.raises(ClusterError, match=f"topology {record.id} is still there after 0 s"):
        client.await_removed(record.id, 0.0)
    for port in (6700, 6701):
        supervisor.say(port, record.id, "stopped", incarnation=3)
    client.await_removed(record.id, DEADLINE_SECS)
    assert not run_dir.board(record.id).exists()
    assert len(client.get_cluster().free_slots) == 2


# ---- beginning anew ----


def keep_state(run_dir: RunDir, name: str = "x") -> Path:
    position = run_dir.topology_state(name) / "lines-0" / "position"
    position.parent.mkdir(parents=True)
    position.write_text("12")
    return position


def submit_fresh(client: NimbusClient, run_dir: RunDir, **changes: Any) -> TopologyRecord:
    wanted = {"name": "x", "conf": {"workers": 1}, "components": COMPONENTS, "sys_path": ["lib"], **changes}
    return client.submit_topology(SubmitTopology(blob=CodeStore(run_dir.code).put(b"code"), fresh=True, **wanted))


def test_a_refused_submission_loses_no_state(
    client: NimbusClient, supervisor: FakeSupervisor, run_dir: RunDir
) -> None:
    supervisor.register()
    position = keep_state(run_dir)
    for changes, message in (
        ({"conf": {"workers": 0}}, "workers is 0"),
        ({"components": []}, "the topology has 0 tasks"), ({"name": ".."}, "not allowed"),
    ):
        with pytest.raises(UsageError, match=message):
            submit_fresh(client, run_dir, **changes)
    run_dir.boards.rmdir()
    with pytest.raises(ClusterError, match="cannot create status board"):
        submit_fresh(client, run_dir)
    run_dir.boards.mkdir()
    assert position.read_text() == "12"
    assert [path.name for path in run_dir.topology_state("x").iterdir()] == ["lines-0"]
    submit(client, run_dir, workers=1)
    with pytest.raises(UsageError, match="a topology named 'x' is already running"):
        submit_fresh(client, run_dir)
    assert position.read_text() == "12"


# ---- who is believed ----


def test_hostile_frames_are_dropped_counted_and_harmless(
    client: NimbusClient, run_dir: RunDir, raw: zmq.Socket[bytes]
) -> None:
    submit(client, run_dir)
    kill = KillTopology("x")
    raw.send_multipart(Sealer(b"x" * 32, "client:1").seal("request", 1, "kill_topology", kill))
    raw.send_multipart([os.urandom(32), os.urandom(1000)])
    raw.send_multipart([b"cos\nsystem\n(S'touch marker'\ntR."])
    raw.send_multipart([b"part"] * 20)
    wait_for("4 refusals", lambda: client.get_cluster().refused_frames == 4)
    assert client.get_topology("x").topology.status == "ACTIVE"


# ---- one Nimbus, its death and its end ----


def test_a_second_nimbus_is_refused(nimbus: NimbusDaemon, client: NimbusClient, run_dir: RunDir) -> None:
    second = NimbusDaemon(run_dir)
    assert second.end() == 2
    assert f"nimbus: run directory {run_dir.path} is in use by pid {nimbus.process.pid}" in second.words()
    second.cut_lifeline()
    assert client.get_cluster().topologies == []


def test_a_killed_nimbus_is_taken_over_by_the_next(run_dir: RunDir) -> None:
    first = NimbusDaemon(run_dir)
    supervisor = FakeSupervisor(run_dir)
    supervisor.register()
    client = NimbusClient(run_dir)
    record = submit(client, run_dir)
    assignment = client.get_topology("x").assignment
    wanted = supervisor.next_assignment()
    supervisor.say(6700, record.id, "died")
    wait_for("the death is known", lambda: client.get_topology("x").restarts_total == 1)
    first.process.kill()
    first.end()
    with pytest.raises(ClusterError, match=f"no cluster runs in {run_dir.path}"):
        client.get_cluster()
    # Of a submission that was never stored: no worker was begun on it.
    Board.create(str(run_dir.board("y-2-00000000")), 1, 1).close()
    (run_dir.boards / "y-2-00000000.new").touch()

    second = NimbusDaemon(run_dir)
    assert client.get_topology("x").assignment == assignment
    assert client.get_topology("x").restarts_total == 1
    assert supervisor.register() == wanted
    assert os.listdir(run_dir.boards) == [record.id]
    client.close()
    supervisor.close()
    first.cut_lifeline()
    second.close()


def test_the_launchers_death_ends_everything(run_dir: RunDir) -> None:
    nimbus = NimbusDaemon(run_dir)
    supervisor = FakeSupervisor(run_dir)
    supervisor.register()
    nimbus.cut_lifeline()
    told = supervisor.next_event()
    assert isinstance(told, Shutdown)
    assert told.grace_secs > 0
    assert nimbus.process.poll() is None
    supervisor.leave()
    assert nimbus.end() == 0
    supervisor.close()
    nimbus.close()


def test_a_shutdown_request_ends_everything(nimbus: NimbusDaemon, run_dir: RunDir, client: NimbusClient) -> None:
    supervisor = FakeSupervisor(run_dir)
    supervisor.register()
    client.shutdown(0.5)
    assert supervisor.next_event() == Shutdown(0.5)
    with pytest.raises(ClusterError, match="Nimbus is shutting down"):
        submit(client, run_dir)
    supervisor.leave()
    client.await_end(DEADLINE_SECS)
    assert nimbus.end() == 0
    assert run_dir.key_file.exists()
    assert not run_dir.nimbus_socket.exists()
    supervisor.close()


def test_supervisors_that_do_not_leave_are_not_waited_for_for_ever(nimbus: NimbusDaemon, run_dir: RunDir) -> None:
    supervisor = FakeSupervisor(run_dir)
    supervisor.register()
    nimbus.process.send_signal(signal.SIGINT)
    nimbus.process.send_signal(signal.SIGTERM)
    assert isinstance(supervisor.next_event(), Shutdown)
    nimbus.process.send_signal(signal.SIGTERM)
    assert supervisor.next_event() == Shutdown(0.0)
    assert nimbus.end() == 0
    assert "the supervisor of node-1 has not ended in time" in nimbus.words()
    supervisor.close()


def test_the_run_directory_of_a_dead_launcher_is_swept() -> None:
    program = "import os; from squall.ipc.rundir import RunDir; print(RunDir.create().path); os.kill(os.getpid(), 9)"
    ended = subprocess.run(
        [sys.executable, "-u", "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert ended.returncode == -signal.SIGKILL
    assert sweep_stale() == [Path(ended.stdout.strip())]
