"""A real Nimbus process, spoken to by real clients and by supervisors that exist only as far as Nimbus can see."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.board import Board
from squall.ipc.control import ControlClient
from squall.ipc.envelope import Sealer
from squall.ipc.rundir import RunDir, sweep_stale
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.messages import (
    AssignNode,
    ComponentSummary,
    GetCluster,
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


def test_ready_is_one_byte(nimbus: NimbusDaemon) -> None:
    assert len(nimbus.told_ready) == 1


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


def test_kill_waits_its_time(client: NimbusClient, supervisor: FakeSupervisor, run_dir: RunDir) -> None:
    supervisor.register()
    submit(client, run_dir)
    supervisor.next_assignment()
    began = time.monotonic()
    client.kill_topology("x", 0.3)
    assert supervisor.next_assignment()[6700].topology.status == "KILLED"
    assert supervisor.next_assignment() == {}
    assert time.monotonic() - began >= 0.3


def test_a_topology_waits_for_a_supervisor(client: NimbusClient, supervisor: FakeSupervisor, run_dir: RunDir) -> None:
    record = submit(client, run_dir)
    assert client.get_topology("x").assignment is None
    assert not run_dir.board(record.id).exists()
    assert sorted(supervisor.register()) == [6700, 6701]
    assert run_dir.board(record.id).exists()


def test_errors_arrive_as_they_were_raised(client: NimbusClient, run_dir: RunDir) -> None:
    submit(client, run_dir)
    with pytest.raises(UsageError, match="a topology named 'x' is already running"):
        submit(client, run_dir)
    with pytest.raises(UsageError, match=r"code 0{64} of topology 'y' is not in the code store"):
        client.submit_topology(SubmitTopology("y", {"workers": 1}, COMPONENTS, "0" * 64, []))
    with pytest.raises(UsageError, match="not a SHA-256 digest"):
        client.submit_topology(SubmitTopology("y", {"workers": 1}, COMPONENTS, "../key", []))
    with pytest.raises(UsageError, match="there is no topology named 'y'; running: 'x'"):
        client.get_topology("y")
    with pytest.raises(UsageError, match="allowed: a number of seconds from 0 up"):
        client.shutdown(-1.0)
    assert [record.name for record in client.get_cluster().topologies] == ["x"]


def test_a_board_that_cannot_be_made_refuses_the_submission(
    client: NimbusClient, supervisor: FakeSupervisor, run_dir: RunDir
) -> None:
    supervisor.register()
    run_dir.boards.rmdir()
    with pytest.raises(ClusterError, match=r"cannot create status board .*: No such file or directory"):
        submit(client, run_dir)
    assert client.get_cluster().topologies == []
    run_dir.boards.mkdir()
    submit(client, run_dir)
    assert len(supervisor.next_assignment()) == 2


# ---- beginning anew ----


def keep_state(run_dir: RunDir, name: str = "x") -> Path:
    position = run_dir.topology_state(name) / "lines-0" / "position"
    position.parent.mkdir(parents=True)
    position.write_text("12")
    return position


def submit_fresh(client: NimbusClient, run_dir: RunDir, **changes: Any) -> TopologyRecord:
    wanted = {"name": "x", "conf": {"workers": 1}, "components": COMPONENTS, "sys_path": ["lib"], **changes}
    return client.submit_topology(SubmitTopology(blob=CodeStore(run_dir.code).put(b"code"), fresh=True, **wanted))


def test_state_is_out_of_the_way_when_a_worker_may_start_and_then_gone(
    client: NimbusClient, supervisor: FakeSupervisor, run_dir: RunDir
) -> None:
    supervisor.register()
    position = keep_state(run_dir)
    other = keep_state(run_dir, "y")
    record = submit_fresh(client, run_dir)
    supervisor.next_assignment()
    assert not position.parent.exists()
    assert not run_dir.set_aside("x", record.id).exists()
    assert other.read_text() == "12"


def test_a_refused_submission_loses_no_state(
    client: NimbusClient, supervisor: FakeSupervisor, run_dir: RunDir
) -> None:
    supervisor.register()
    position = keep_state(run_dir)
    for changes, message in (
        ({"conf": {"workers": 0}}, "workers is 0"), ({"status": "KILLED"}, "status is 'KILLED'"),
        ({"components": []}, "the topology has 0 tasks"), ({"name": ".."}, "is not allowed"),
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


def test_a_submission_that_could_not_be_stored_loses_no_state(run_dir: RunDir) -> None:
    """The store fails at the last moment: the state is aside then, and the next Nimbus puts it back."""
    position = keep_state(run_dir)
    first = NimbusDaemon(run_dir)
    with NimbusClient(run_dir) as client:
        # A limit on the size of files stands for a full disk.
        resource.prlimit(first.process.pid, resource.RLIMIT_FSIZE, (0, 0))
        with pytest.raises(ClusterError, match=r"nimbus\.db"):
            submit_fresh(client, run_dir)
        assert first.end() == 1
        assert not position.exists()
    first.cut_lifeline()
    with contextlib.closing(NimbusDaemon(run_dir)), NimbusClient(run_dir) as client:
        assert position.read_text() == "12"
        assert client.get_cluster().topologies == []


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


def test_signed_nonsense_is_answered(nimbus: NimbusDaemon, run_dir: RunDir) -> None:
    control = ControlClient(run_dir.nimbus_socket, run_dir.key(), "client:1")
    with pytest.raises(ClusterError, match="Nimbus answers no 'fly'; it answers submit_topology, get_topology"):
        control.call("fly", GetCluster(), GetCluster, DEADLINE_SECS)
    with pytest.raises(ClusterError, match="kill_topology from client:1 is no KillTopology"):
        control.call("kill_topology", Shutdown(1.0), TopologyRecord, DEADLINE_SECS)
    control.send_event(GetCluster())
    control.send_event(msgspec.defstruct("SlotChanged", [("node", int)])(7))
    wait_for("both events are refused in the log", lambda: nimbus.words().count("WARNING") == 2)
    control.close()


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
    with pytest.raises(ClusterError, match=f"the cluster in {run_dir.path} has ended: start one"):
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


def test_a_damaged_store_is_refused(run_dir: RunDir) -> None:
    run_dir.nimbus_db.write_bytes(b"")
    nimbus = NimbusDaemon(run_dir)
    assert nimbus.end() == 1
    assert "nimbus.db is damaged" in nimbus.words()
    assert run_dir.nimbus_db.exists()
    nimbus.close()


def test_without_a_cluster_a_client_says_so_at_once(run_dir: RunDir) -> None:
    with pytest.raises(ClusterError, match=f"no cluster runs in {run_dir.path}: start one"):
        NimbusClient(run_dir)


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
