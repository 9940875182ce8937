"""`squall thrift`: a real cluster by Storm's Nimbus interface, for the real streamparse, for hostile clients, and while
Nimbus is away."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.rpc import client_context
from thriftpy2.thrift import TApplicationException
from thriftpy2.transport import TFramedTransportFactory

from squall.ui.thrift.storm_nimbus import idl
from squall.ui.thrift.thrift_server import CONNECTIONS, FRAME_BYTES
from tests.needs import require
from tests.process.cli import ROOT, start
from tests.process.standing_tools import Standing, directory
from tests.process.waiting import wait_for

PYTHON = ROOT / "build" / "streamparse" / "bin" / "python"
TOPOLOGY = "tests/process/ui_topology.py:shown"
PATIENCE_SECS = 100
CALL = b"\x80\x01\x00\x01\x00\x00\x00\x0dgetNimbusConf\x00\x00\x00\x01\x00"
"""Version and kind, name, number, and the end of no arguments."""


class Thrift:
    """A running `squall thrift`."""

    def __init__(self, cluster: Standing, process: subprocess.Popen[str], port: int) -> None:
        self.cluster, self.process, self.port = cluster, process, port

    def client(self) -> contextlib.AbstractContextManager[Any]:
        """A connection by our own file of the interface."""
        return client_context(
            idl.Nimbus, "127.0.0.1", self.port, proto_factory=TBinaryProtocolFactory(),
            trans_factory=TFramedTransportFactory(), socket_timeout=PATIENCE_SECS * 1000,
            connect_timeout=PATIENCE_SECS * 1000,
        )

    def call(self, method: str, *arguments: Any) -> Any:
        with self.client() as client:
            return getattr(client, method)(*arguments)

    def connection(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECS)

    def submit(self, name: str) -> None:
        """A topology, and the moment from which it is known."""
        self.cluster.ok("submit", TOPOLOGY, "--name", name, "--set", "on_error=fail", "--set", "max_attempts=2")
        wait_for(f"a look at {name}", lambda: name in self.statuses())

    def statuses(self) -> dict[str, str]:
        return {each.name: each.status for each in self.call("getTopologySummaries")}

    def has_status(self, name: str, status: str | None) -> None:
        wait_for(f"{name} to be {status}", lambda: self.statuses().get(name) == status)


@contextlib.contextmanager
def thrift(cluster: Standing) -> Iterator[Thrift]:
    process = start("thrift", "--port", "0", SQUALL_DIR=str(cluster.path))
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("Storm's Nimbus interface: 127.0.0.1:"), process.stderr and process.stderr.read()
        yield Thrift(cluster, process, int(line.rpartition(":")[2]))
    finally:
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE_SECS)
    assert (process.returncode, said) == (0, "")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Standing]:
    with directory() as standing:
        standing.up(nodes=2, slots=2)
        yield standing


@pytest.fixture(scope="module")
def served(cluster: Standing) -> Iterator[Thrift]:
    with thrift(cluster) as one:
        one.submit("words")
        yield one


def streamparse(code: str, *arguments: str, cwd: Path) -> str:
    """What a program prints that uses streamparse."""
    require("streamparse")
    command = [PYTHON, "-W", "ignore", "-c", code, *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_SECS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_streamparse_lists_and_kills(served: Thrift, tmp_path: Path) -> None:
    served.submit("listed")
    prod = {"user": "", "nimbus": f"127.0.0.1:{served.port}", "use_ssh_for_nimbus": False, "workers": []}
    (tmp_path / "config.json").write_text(json.dumps({"envs": {"prod": prod}}))
    told = streamparse("from streamparse.cli import list as it\nit.list_topologies('prod', 7000)", cwd=tmp_path)
    assert "listed" in told
    assert "words" in told
    streamparse("from streamparse.cli import kill as it\nit.kill_topology('listed', 'prod', 0, 7000)", cwd=tmp_path)
    served.has_status("listed", None)
    assert "words" in served.statuses()


ORDER = """
import sys
from streamparse.thrift import *
from streamparse.util import get_nimbus_client
print(eval("get_nimbus_client(host='127.0.0.1', port=int(sys.argv[1]))." + sys.argv[2]))
"""


def test_streamparses_client_gives_orders(served: Thrift, tmp_path: Path) -> None:
    def order(call: str) -> str:
        return streamparse(ORDER, str(served.port), call, cwd=tmp_path)

    served.submit("ordered")
    order("deactivate('ordered')")
    served.has_status("ordered", "INACTIVE")
    order("activate('ordered')")
    served.has_status("ordered", "ACTIVE")
    order("rebalance('ordered', RebalanceOptions(wait_secs=5, num_workers=2, num_executors={'picky': 1}))")
    wait_for("the move", lambda: served.call("getTopologySummaryByName", "ordered").num_workers == 2)
    info = served.call("getTopologyInfoByName", "ordered")
    assert [each.component_id for each in info.executors].count("picky") == 1
    assert f"id='{info.id}', name='ordered'" in order(f"getTopologyInfo('{info.id}')")
    assert f"port={served.port}" in order("getLeader()")
    order("killTopologyWithOpts('ordered', KillOptions(wait_secs=0))")
    served.has_status("ordered", None)


def test_streamparse_is_told_to_submit_otherwise(served: Thrift, tmp_path: Path) -> None:
    for call, kind in (
        ("beginFileUpload()", "AuthorizationException"),
        ("submitTopology('x', 'jar', '{}', StormTopology({}, {}, {}))", "InvalidTopologyException"),
        ("submitTopologyWithOpts('x', 'jar', '{}', StormTopology({}, {}, {}), SubmitOptions(1))",
         "InvalidTopologyException"),
    ):
        with pytest.raises(AssertionError, match=rf"{kind}.*squall submit FILE"):
            streamparse(ORDER, str(served.port), call, cwd=tmp_path)


COMPARED = """
import sys, thriftpy2
from streamparse.thrift import storm_thrift
ours = thriftpy2.load(sys.argv[1], "ours_thrift")

def shown(of):
    if isinstance(of, (tuple, list)):
        return [shown(each) for each in of]
    return of.__name__ if isinstance(of, type) else of

def compare(name, mine, theirs):
    for number, field in mine.items():
        if number not in theirs:
            print("newer", name, field[1])
        elif shown(field[:-1]) != shown(theirs[number][:-1]):
            print("other", name, shown(field), shown(theirs[number]))

meta = ours.__thrift_meta__
for one in meta["structs"] + meta["unions"] + meta["exceptions"]:
    compare(one.__name__, one.thrift_spec, getattr(storm_thrift, one.__name__).thrift_spec)
assert ours.NumErrorsChoice._NAMES_TO_VALUES == storm_thrift.NumErrorsChoice._NAMES_TO_VALUES
for call in ours.Nimbus.thrift_services:
    if call not in storm_thrift.Nimbus.thrift_services:
        print("newer", call)
        continue
    for part in ("_args", "_result"):
        compare(call, *(getattr(service, call + part).thrift_spec for service in (ours.Nimbus, storm_thrift.Nimbus)))
"""


def test_the_interface_is_storms(tmp_path: Path) -> None:
    """By the copy in streamparse, which lacks what came later."""
    told = streamparse(COMPARED, str(ROOT / "ui" / "thrift" / "nimbus.thrift"), cwd=tmp_path)
    assert set(told.splitlines()) == {
        "newer TopologySummary storm_version", "newer TopologyInfo storm_version",
        "newer SupervisorSummary blacklisted", "newer RebalanceOptions topology_resources_overrides",
        "newer RebalanceOptions topology_conf_overrides", "newer getTopologySummaries", "newer getTopologySummary",
        "newer getTopologySummaryByName", "newer getTopologyInfoByName", "newer getTopologyInfoByNameWithOpts",
    }


def test_questions_have_the_figures_of_the_cluster(served: Thrift) -> None:
    summary = served.call("getClusterInfo")
    assert {(each.host, each.num_workers) for each in summary.supervisors} == {("node-1", 2), ("node-2", 2)}
    [leader] = summary.nimbuses
    assert (leader.host, leader.port, leader.isLeader) == ("127.0.0.1", served.port, True)
    row = served.call("getTopologySummaryByName", "words")
    assert served.call("getTopologySummary", row.id).name == "words"
    assert json.loads(served.call("getNimbusConf"))["topology.workers"] == 1
    assert [served.call("isTopologyNameAllowed", name) for name in ("words", "a/b", "", "others")] == [
        False, False, False, True]

    def failed() -> Any:
        info = served.call("getTopologyInfo", row.id)
        return info if info.errors["picky"] and all(each.uptime_secs for each in info.executors) else None

    info = wait_for("the error of a component", failed)
    assert (len(info.executors), info.errors["source"]) == (row.num_executors, [])
    by_component = {each.component_id: each for each in info.executors}
    spout = by_component["source"].stats.specific.spout
    assert spout.acked[":all-time"]["default"] > 0
    assert spout.complete_ms_avg[":all-time"]["default"] > 0
    assert by_component["source"].stats.emitted[":all-time"]["default"] > 0
    bolt = by_component["picky"].stats.specific.bolt
    assert bolt.executed[":all-time"][idl.GlobalStreamId("source", "default")] > 0
    choice = idl.NumErrorsChoice
    for most, count in ((choice.NONE, 0), (choice.ONE, 1)):
        options = idl.GetInfoOptions(most)
        for asked in (("getTopologyInfoWithOpts", row.id), ("getTopologyInfoByNameWithOpts", "words")):
            assert len(served.call(*asked, options).errors["picky"]) == count
    assert "cannot take" in info.errors["picky"][0].error


@pytest.mark.parametrize("call", [
    ("activate", "nobody"), ("deactivate", "nobody"), ("killTopology", "nobody"),
    ("killTopologyWithOpts", "nobody", idl.KillOptions()), ("rebalance", "nobody", idl.RebalanceOptions()),
    ("getTopologyInfo", "nobody"), ("getTopologyInfoByName", "nobody"), ("getTopologySummary", "nobody"),
    ("getTopologySummaryByName", "nobody"), ("killTopology", None), ("getTopologyInfo", "words"),
], ids=str)
def test_what_is_not_there_is_not_alive(served: Thrift, call: tuple[Any, ...]) -> None:
    with pytest.raises(idl.NotAliveException) as refused:
        served.call(*call)
    assert "there is no topology" in refused.value.msg


def test_mistakes_in_orders_are_told_and_change_nothing(served: Thrift) -> None:
    before = served.call("getTopologySummaryByName", "words")
    for options, said in (
        (idl.RebalanceOptions(num_workers=0), "workers is 0"),
        (idl.RebalanceOptions(num_executors={"nobody": 1}), "there is no component 'nobody'"),
        (idl.RebalanceOptions(wait_secs=-1), "wait_secs is -1"),
        (idl.RebalanceOptions(topology_conf_overrides='{"topology.workers": 2}'), "neither resources nor settings"),
        (idl.RebalanceOptions(topology_resources_overrides={"picky": {"cpu": 1.0}}), "neither resources nor settings"),
    ):
        with pytest.raises(idl.InvalidTopologyException) as refused:
            served.call("rebalance", "words", options)
        assert said in refused.value.msg
    with pytest.raises(TApplicationException, match="wait_secs is -1"):
        served.call("killTopologyWithOpts", "words", idl.KillOptions(-1))
    after = served.call("getTopologySummaryByName", "words")
    assert (after.status, after.num_executors) == (before.status, before.num_executors)


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


@pytest.mark.parametrize("sent", [
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"\x00\x00\x00\x00",
    (FRAME_BYTES + 1).to_bytes(4, "big"),
    b"\xff\xff\xff\xff",
    framed(bytes(range(256))),
    framed(CALL[:-1]),
    framed(CALL[:-1] + b"\x0f\x00\x09\x08\x7f\xff\xff\xff"),  # two billion numbers, of which none came
    framed(CALL[:-1] + b"\x0b\x00\x09\xff\xff\xff\xff"),
], ids=lambda sent: repr(sent[:12]))
def test_what_cannot_be_read_ends_its_connection(served: Thrift, sent: bytes) -> None:
    with served.connection() as connection:
        connection.sendall(sent)
        with contextlib.suppress(ConnectionResetError):  # it was closed with bytes unread
            assert connection.recv(1) == b""
    assert "words" in served.statuses()


def test_a_frame_may_come_in_pieces_and_another_after_it(served: Thrift) -> None:
    with served.connection() as connection, connection.makefile("rb") as answers:
        for _ in range(2):
            for byte in framed(CALL):
                connection.sendall(bytes([byte]))
            answer = answers.read(int.from_bytes(answers.read(4), "big"))
            assert b"topology.workers" in answer
        # A whole call in a frame that is cut off.
        connection.sendall(framed(CALL + b"more")[:-1])
        connection.shutdown(socket.SHUT_WR)
        assert answers.read() == b""


def test_a_method_that_is_not_served_is_unknown(served: Thrift, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="TApplicationException: Unknown method"):
        streamparse(ORDER, str(served.port), "getTopologyConf('words')", cwd=tmp_path)
    with served.connection() as connection, connection.makefile("rb") as answers:
        for call, said in ((CALL.replace(b"Nimbus", b"Others"), b"getOthersConf"), (CALL, b"topology.workers")):
            connection.sendall(framed(call))
            assert said in answers.read(int.from_bytes(answers.read(4), "big"))


def test_silent_clients_keep_nobody_waiting_and_are_not_too_many(served: Thrift) -> None:
    with contextlib.ExitStack() as silent:
        silent.enter_context(served.connection()).sendall(framed(CALL)[:9])
        assert "words" in served.statuses()
        for _ in range(CONNECTIONS):
            last = silent.enter_context(served.connection())
        assert last.recv(1) == b""
    wait_for("room", lambda: _is_served(served))


def _is_served(served: Thrift) -> bool:
    try:
        return "words" in served.statuses()
    except Exception:
        return False


def test_a_port_in_use_and_no_cluster_are_one_line(served: Thrift) -> None:
    refused = served.cluster.refused(2, "thrift", "--port", str(served.port))
    assert refused == f"cannot serve at 127.0.0.1:{served.port}: Address already in use"
    with directory() as nothing:
        assert nothing.refused(2, "thrift").startswith(f"there is no cluster at {nothing.path}: start one with ")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_clients_connected(served: Thrift, signum: signal.Signals) -> None:
    with thrift(served.cluster) as other, other.connection(), other.client() as client:
        assert client.getLeader().port == other.port
        other.process.send_signal(signum)
        assert other.process.wait(PATIENCE_SECS) == 0


def test_it_serves_again_when_nimbus_is_back(served: Thrift) -> None:
    with served.cluster.keeper_held():
        served.cluster.nimbus().kill()
        wait_for("its absence", lambda: not served.call("getLeader").isLeader)
        assert "words" in served.statuses()
        with pytest.raises(TApplicationException, match="Nimbus"):
            served.call("deactivate", "words")
        with contextlib.ExitStack() as stack:
            late = stack.enter_context(thrift(served.cluster))
            for method in ("getClusterInfo", "getTopologySummaries", "getLeader"):
                with pytest.raises(TApplicationException, match="does not answer"):
                    late.call(method)
            with pytest.raises(TApplicationException, match="Nimbus"):
                late.call("activate", "words")
            served.cluster.keeper().resume()
            for one in (served, late):
                wait_for("the next Nimbus", lambda one=one: _leads(one))
                one.call("activate", "words")
                assert one.statuses()["words"] == "ACTIVE"


def _leads(served: Thrift) -> bool:
    try:
        return bool(served.call("getLeader").isLeader)
    except TApplicationException:
        return False


BARE = """
import sys
sys.modules.update(dict.fromkeys({missing}))
from squall.cli import main
main(["thrift", "--port", "0", "--dir", "/nowhere"])
"""


@pytest.mark.parametrize(("missing", "said"), [
    (["thriftpy2"], "squall thrift needs thriftpy2: pip install 'squall[thrift]'"),
    (["nicegui", "fastapi", "uvicorn", "starlette", "prometheus_client"], "there is no cluster at /nowhere"),
], ids=["its own", "those of squall ui"])
def test_it_needs_its_own_extra_alone(missing: list[str], said: str) -> None:
    done = subprocess.run([sys.executable, "-c", BARE.format(missing=missing)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"squall: {said}")
