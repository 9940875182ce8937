"""Storm's clients: a real cluster by Storm's REST API and its Nimbus interface, for the real streamparse, for hostile
clients, and while Nimbus is away."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.rpc import client_context
from thriftpy2.thrift import TApplicationException
from thriftpy2.transport import TFramedTransportFactory

from squall.ui.storm_thrift import CONNECTIONS, FRAME_BYTES, idl
from tests.needs import require
from tests.process.cli import ROOT, start
from tests.process.standing_tools import Standing, directory
from tests.process.ui_topology import EVIL
from tests.process.waiting import wait_for
from tests.servers.ui_tools import TOPOLOGY, address

pytestmark = pytest.mark.xdist_group("browser")  # one cluster for all

PYTHON = ROOT / "build" / "streamparse" / "bin" / "python"
PATIENCE_SECS = 100
CALL = b"\x80\x01\x00\x01\x00\x00\x00\x0dgetNimbusConf\x00\x00\x00\x01\x00"
"""Version and kind, name, number, and the end of no arguments."""


def submit(cluster: Standing, name: str) -> None:
    cluster.ok("submit", TOPOLOGY, "--name", name, "--set", "on_error=fail", "--set", "max_attempts=2")


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
def served(page_cluster: Standing) -> Iterator[Thrift]:
    with thrift(page_cluster) as one:
        yield one


def rest(cluster: Standing, path: str, method: str = "GET") -> str:
    """What Storm's REST API answers."""
    token = cluster.run_dir.ui_token.read_text().strip()
    request = urllib.request.Request(
        f"{address(cluster)}/api/v1/{path}", method=method, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=PATIENCE_SECS) as answer:
        return str(answer.read().decode())


def row_of(cluster: Standing, name: str) -> dict[str, Any] | None:
    rows = json.loads(rest(cluster, "topology/summary"))["topologies"]
    return next((row for row in rows if row["name"] == name), None)


def streamparse(code: str, *arguments: str, cwd: Path, **settings: object) -> str:
    """What a program prints that uses streamparse, whose environment "prod" has these settings."""
    require("streamparse")
    prod = {"user": "", "nimbus": "127.0.0.1", "use_ssh_for_nimbus": False, "workers": [], **settings}
    (cwd / "config.json").write_text(json.dumps({"envs": {"prod": prod}}))
    done = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", code, *arguments], cwd=cwd, capture_output=True, text=True,
        timeout=PATIENCE_SECS, env={**os.environ, "no_proxy": "127.0.0.1", "NETRC": str(cwd / "netrc")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- figures ----


COMMANDS = """
from streamparse.cli import stats, worker_uptime, slot_usage
stats.display_stats('prod')
stats.display_stats('prod', topology_name='words')
for component in ('source', 'picky'):
    stats.display_stats('prod', topology_name='words', component_name=component)
worker_uptime.display_worker_uptime('prod')
slot_usage.display_slot_usage('prod')
"""


def test_streamparse_shows_all_with_a_token_from_netrc(page_cluster: Standing, tmp_path: Path) -> None:
    port = urlsplit(address(page_cluster)).port
    token = page_cluster.run_dir.ui_token.read_text().strip()
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login squall password {token}\n")
    told = streamparse(COMMANDS, cwd=tmp_path, **{"ui.port": port})
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in told.splitlines() if "|" in line]
    cells = {cell for row in rows for cell in row}
    assert cells >= {"node-1", "node-2", "words", "source", "picky", "All time", "10m 0s", "3h 0m 0s", "1d 0h 0m 0s"}
    assert "MISSING" not in cells, "a key of Storm's is not there"
    usage = rows[rows.index(["Host", "words"]) + 1 :]
    assert usage
    assert all(row[1][1:].startswith(" (") for row in usage)


def test_pages_have_keys_that_streamparse_does_not_read(page_cluster: Standing) -> None:
    def get(path: str) -> Any:
        return json.loads(rest(page_cluster, path))

    row = wait_for("the first look of the page", lambda: row_of(page_cluster, "words"))
    page = get(f"topology/{row['id']}?window=600&sys=true")
    assert row.keys() <= page.keys()
    assert [stats["window"] for stats in page["topologyStats"]] == ["600", "10800", "86400", ":all-time"]
    assert page["spouts"][0].keys() >= {"lastError", "errorTime"}
    component = get(f"topology/{row['id']}/component/picky")
    assert {executor["host"] for executor in component["executorStats"]} <= {"node-1", "node-2"}
    metrics = get(f"topology/{row['id']}/metrics")
    assert {bolt["id"] for bolt in metrics["bolts"]} == {"picky", EVIL}
    graph = get(f"topology/{row['id']}/visualization")
    assert graph["picky"][":inputs"][0][":component"] == "source"
    assert get(f"topology/{row['id']}/visualization-init")["visualizationTable"]
    assert [lag["spoutId"] for lag in get(f"topology/{row['id']}/lag") if lag["errorInfo"]] == ["source"]
    assert len(get(f"topology-workers/{row['id']}")["hostPortList"]) == row["workersTotal"]
    workers = [worker for node in ("node-1", "node-2") for worker in get(f"supervisor?id={node}")["workers"]]
    assert [worker["topologyName"] for worker in workers].count("words") == row["workersTotal"]
    for path in ("cluster/configuration", "nimbus/summary", "history/summary", "owner-resources"):
        assert get(path)


def test_questions_by_thrift_are_answered_as_by_storm(served: Thrift) -> None:
    summary = served.call("getClusterInfo")
    assert {(each.host, each.num_workers) for each in summary.supervisors} == {("node-1", 2), ("node-2", 2)}
    [leader] = summary.nimbuses
    assert (leader.host, leader.port, leader.isLeader) == ("127.0.0.1", served.port, True)
    assert json.loads(served.call("getNimbusConf"))["topology.workers"] == 1
    assert [served.call("isTopologyNameAllowed", name) for name in ("words", "a/b", "", "others")] == [
        False, False, False, True]

    def failed() -> Any:
        info = served.call("getTopologyInfoByName", "words")
        return info if info.errors["picky"] and all(each.uptime_secs for each in info.executors) else None

    info = wait_for("the error of a component", failed)
    asked = served.call("getTopologySummary", info.id)
    slots = {(each.host, each.port) for each in info.executors}
    assert (asked.name, asked.num_workers, asked.num_executors) == ("words", len(slots), len(info.executors))
    assert info.errors["source"] == []
    assert "cannot take" in info.errors["picky"][0].error
    stats = {each.component_id: each.stats for each in info.executors}
    assert stats["source"].specific.spout.acked[":all-time"]["default"] > 0
    assert stats["source"].specific.spout.complete_ms_avg[":all-time"]["default"] > 0
    assert stats["source"].emitted[":all-time"]["default"] > 0
    assert stats["picky"].specific.bolt.executed[":all-time"][idl.GlobalStreamId("source", "default")] > 0
    choice = idl.NumErrorsChoice
    for most, count in ((choice.NONE, 0), (choice.ONE, 1)):
        options = idl.GetInfoOptions(most)
        for asked in (("getTopologyInfoWithOpts", info.id), ("getTopologyInfoByNameWithOpts", "words")):
            assert len(served.call(*asked, options).errors["picky"]) == count


def test_logs_are_listed_shown_and_searched(page_cluster: Standing) -> None:
    file, *_ = json.loads(rest(page_cluster, "listLogs"))
    with (page_cluster.run_dir.logs / file).open("a") as text:
        text.write("one needle and another needle\n")
    assert "one needle and another needle\n" in rest(page_cluster, f"log?file={quote(file, '')}")

    def matches(path: str, **options: object) -> Any:
        given = "".join(f"&{name.replace('_', '-')}={value}" for name, value in options.items())
        return json.loads(rest(page_cluster, f"{path}search-string=needle{given}"))

    search = f"search?file={quote(file, '')}&"
    found = matches(search)
    assert len(found["matches"]) == 2
    assert found["matches"][0]["afterString"].startswith(" and another needle\n")
    first = matches(search, num_matches=1)
    rest_of_them = matches(search, start_byte_offset=first["nextByteOffset"])
    assert len(first["matches"]) == len(rest_of_them["matches"]) == 1
    groups = matches(f"deepSearch/{file.partition('/')[0]}?")
    [deep] = [group for group in groups if group["matches"]]
    assert deep["matches"] == found["matches"]


# ---- orders ----


def test_orders_by_rest_are_taken_by_id(page_cluster: Standing) -> None:
    submit(page_cluster, "told")
    row = wait_for("a look at it", lambda: row_of(page_cluster, "told"))
    for operation, path, status in (
        ("deactivate", "deactivate", "INACTIVE"), ("activate", "activate", "ACTIVE"),
        ("rebalance", "rebalance/5", "ACTIVE"), ("kill", "kill/0", "KILLED"),
    ):
        expected = {"topologyOperation": operation, "topologyId": row["id"], "status": "success"}
        assert json.loads(rest(page_cluster, f"topology/{row['id']}/{path}", "POST")) == expected
        wait_for(operation, lambda status=status: (
            (now := row_of(page_cluster, "told")) is None or now["status"] == status
        ))


ORDERS = """
import sys
from streamparse.thrift import *
from streamparse.util import get_nimbus_client
from streamparse.cli import kill, list
for call in sys.argv[2:]:
    try:
        print(eval(call, globals(), {"nimbus": get_nimbus_client(host='127.0.0.1', port=int(sys.argv[1]))}))
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_streamparse_gives_orders_and_is_told_to_submit_otherwise(served: Thrift, tmp_path: Path) -> None:
    def order(*calls: str) -> str:
        return streamparse(ORDERS, str(served.port), *calls, cwd=tmp_path, nimbus=f"127.0.0.1:{served.port}")

    submit(served.cluster, "ordered")
    served.has_status("ordered", "ACTIVE")
    told = order("list.list_topologies('prod', 7000)", "nimbus.deactivate('ordered')")
    assert {"ordered", "words"} <= set(told.replace("|", " ").split())
    served.has_status("ordered", "INACTIVE")
    info = served.call("getTopologyInfoByName", "ordered")
    told = order(
        "nimbus.activate('ordered')",
        "nimbus.rebalance('ordered', RebalanceOptions(wait_secs=5, num_workers=2, num_executors={'picky': 1}))",
        f"nimbus.getTopologyInfo('{info.id}')", "nimbus.getLeader()", "nimbus.getTopologyConf('words')",
        "nimbus.beginFileUpload()", "nimbus.submitTopology('x', 'jar', '{}', StormTopology({}, {}, {}))",
        "nimbus.submitTopologyWithOpts('x', 'jar', '{}', StormTopology({}, {}, {}), SubmitOptions(1))",
    )
    assert f"id='{info.id}', name='ordered'" in told
    assert f"port={served.port}" in told
    assert "TApplicationException" in told
    assert "Unknown method" in told
    refusals = [line for line in told.splitlines() if "squall submit FILE" in line]
    assert [line.split()[0] for line in refusals] == ["AuthorizationException", *["InvalidTopologyException"] * 2]
    served.has_status("ordered", "ACTIVE")
    wait_for("the move", lambda: served.call("getTopologySummaryByName", "ordered").num_workers == 2)
    executors = served.call("getTopologyInfoByName", "ordered").executors
    assert [each.component_id for each in executors].count("picky") == 1
    order("kill.kill_topology('ordered', 'prod', 0, 7000)")
    served.has_status("ordered", None)


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
    told = streamparse(COMPARED, str(ROOT / "ui" / "nimbus.thrift"), cwd=tmp_path)
    assert set(told.splitlines()) == {
        "newer TopologySummary storm_version", "newer TopologyInfo storm_version",
        "newer SupervisorSummary blacklisted", "newer RebalanceOptions topology_resources_overrides",
        "newer RebalanceOptions topology_conf_overrides", "newer getTopologySummaries", "newer getTopologySummary",
        "newer getTopologySummaryByName", "newer getTopologyInfoByName", "newer getTopologyInfoByNameWithOpts",
    }


def test_mistakes_by_rest_are_storms(page_cluster: Standing) -> None:
    row = wait_for("the first look of the page", lambda: row_of(page_cluster, "words"))
    for path in (
        "topology/nobody-1", f"topology/{row['id']}/component/picky?window=7", "log?file=../nimbus.db",
        "supervisor?id=nobody", "search?file=x",
    ):
        with pytest.raises(urllib.error.HTTPError) as caught:
            rest(page_cluster, path)
        with caught.value as answer:
            assert answer.code == 500
            assert json.load(answer).keys() == {"error", "errorMessage"}


@pytest.mark.parametrize("call", [
    *[(order, "nobody") for order in ("activate", "deactivate", "killTopology")],
    *[(f"getTopology{what}", "nobody") for what in ("Info", "InfoByName", "SummaryByName")],
    ("killTopologyWithOpts", "nobody", idl.KillOptions()), ("rebalance", "nobody", idl.RebalanceOptions()),
    ("killTopology", None), ("getTopologyInfo", "words"),
], ids=str)
def test_what_is_not_there_is_not_alive(served: Thrift, call: tuple[Any, ...]) -> None:
    with pytest.raises(idl.NotAliveException, match="there is no topology"):
        served.call(*call)


def test_mistakes_in_orders_are_told_and_change_nothing(served: Thrift) -> None:
    before = served.call("getTopologySummaryByName", "words")
    for options, said in (
        (idl.RebalanceOptions(num_executors={"nobody": 1}), "there is no component 'nobody'"),
        (idl.RebalanceOptions(wait_secs=-1), "wait_secs is -1"),
        (idl.RebalanceOptions(topology_conf_overrides='{"topology.workers": 2}'), "neither resources nor settings"),
        (idl.RebalanceOptions(topology_resources_overrides={"picky": {"cpu": 1.0}}), "neither resources nor settings"),
    ):
        with pytest.raises(idl.InvalidTopologyException, match=said):
            served.call("rebalance", "words", options)
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
    framed(CALL[:-1] + b"\x0f\x00\x09\x08\x7f\xff\xff\xff"),  # two billion numbers, of which none came
])
def test_what_cannot_be_read_ends_its_connection(served: Thrift, sent: bytes) -> None:
    with served.connection() as connection:
        connection.sendall(sent)
        with contextlib.suppress(ConnectionResetError):  # it was closed with bytes unread
            assert connection.recv(1) == b""
    assert "words" in served.statuses()


def test_a_frame_may_come_in_pieces_and_another_after_it_and_a_call_of_another_name(served: Thrift) -> None:
    others = CALL.replace(b"Nimbus", b"Others")
    with served.connection() as connection, connection.makefile("rb") as answers:
        for call, said in ((others, b"getOthersConf"), (CALL, b"topology.workers"), (CALL, b"topology.workers")):
            for byte in framed(call):
                connection.sendall(bytes([byte]))
            assert said in answers.read(int.from_bytes(answers.read(4), "big"))
        # A whole call in a frame that is cut off.
        connection.sendall(framed(CALL + b"more")[:-1])
        connection.shutdown(socket.SHUT_WR)
        assert answers.read() == b""


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


def test_a_signal_ends_it_with_clients_connected(served: Thrift) -> None:
    """SIGTERM ends all others."""
    with thrift(served.cluster) as other, other.connection(), other.client() as client:
        assert client.getLeader().port == other.port
        other.process.send_signal(signal.SIGINT)
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
