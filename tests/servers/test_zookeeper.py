"""Nimbus with its store in a real ZooKeeper, and another one that stands by."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from squall.engine.errors import UsageError
from squall.ipc.rundir import RunDir
from squall.scheduler.common.role import RoleKind, processes_of
from squall.scheduler.nimbus.books import Books, StoreError
from squall.scheduler.nimbus.store import open_store
from squall.scheduler.nimbus.zookeeper import ZooKeeperStore, client_of, close, place_of, put_in_zookeeper
from tests.process.cli import ROOT, start
from tests.process.standing_tools import ENDLESS, Standing, directory
from tests.process.waiting import wait_for
from tests.servers.zookeeper import ZooKeeperServer
from tests.unit import test_store

pytestmark = pytest.mark.xdist_group("zookeeper")  # one server for all


@pytest.fixture
def server(zookeeper_server: ZooKeeperServer) -> ZooKeeperServer:
    zookeeper_server.start()
    return zookeeper_server


# ---- the store ----


@pytest.fixture
def run_dir(server: ZooKeeperServer, tmp_path: Path) -> RunDir:
    made = RunDir.create(tmp_path / "c")
    put_in_zookeeper(made, f"{server.hosts}/a/folder", print)
    return made


@pytest.fixture
def store(run_dir: RunDir) -> Iterator[Books]:
    with open_store(run_dir) as opened:
        yield opened


# What the embedded store promises is asked of this one, too: by the fixture above.
test_delete_forgets_everything_but_the_number = test_store.test_delete_forgets_everything_but_the_number
test_a_death_is_counted_once_and_updated = test_store.test_a_death_is_counted_once_and_updated
test_a_transaction_is_all_or_nothing = test_store.test_a_transaction_is_all_or_nothing


def test_all_of_it_is_there_when_it_is_opened_again(run_dir: RunDir) -> None:
    one, two = test_store.record("one"), test_store.record("two", 2)
    deaths = [test_store.death(number) for number in range(ZooKeeperStore.deaths_kept + 5)]
    with open_store(run_dir) as store, store.transaction():
        store.put_topology(two)
        store.put_topology(one)
        store.put_assignment(test_store.assignment(one))
        for death in deaths:
            store.add_restart(two.id, death)
    with open_store(run_dir) as store:
        three = test_store.record("three", 3)
        store.put_topology(three)
        store.delete_topology(three.id)
    with open_store(run_dir) as store:
        assert store.topologies() == [
            (two, None, deaths[-ZooKeeperStore.deaths_kept:], len(deaths)), (one, test_store.assignment(one), [], 0),
        ]
        assert (store.deleted(), store.next_number()) == ({three.id}, 4)


def test_who_opened_it_last_writes_alone(run_dir: RunDir) -> None:
    with open_store(run_dir) as former, open_store(run_dir) as latter:
        with pytest.raises(StoreError, match=r"ZooKeeper at .*: another Nimbus has opened it since$"):
            former.put_topology(test_store.record("one"))
        latter.put_topology(test_store.record("two"))
    with open_store(run_dir) as store:
        assert [stored.record.name for stored in store.topologies()] == ["two"]


# ---- clusters ----


@pytest.fixture
def cluster() -> Iterator[Standing]:
    with directory() as made:
        yield made


@pytest.fixture
def up(cluster: Standing, server: ZooKeeperServer) -> Standing:
    cluster.ok("up", "--slots", "2", "--detach", "--zookeeper", server.hosts)
    return cluster


def nimbuses(cluster: Standing) -> list[psutil.Process]:
    return processes_of(cluster.run_dir, RoleKind.NIMBUS)


@contextlib.contextmanager
def talking_to(hosts: str) -> Iterator[Any]:
    client = client_of(hosts)
    try:
        client.start(timeout=100)
        yield client
    finally:
        close(client)


def next_nimbus(cluster: Standing, former: psutil.Process) -> psutil.Process:
    """The one that has taken over, once it answers, and another one stands by."""
    wait_for("another Nimbus", lambda: cluster.nimbus() != former)
    wait_for("an answer", lambda: cluster.run("status").returncode == 0)
    wait_for("a standby", lambda: " standby " in cluster.ok("ps"))
    assert not former.is_running()
    return cluster.nimbus()


def await_acks(cluster: Standing) -> None:
    before = cluster.described("one").acked
    wait_for("more acks", lambda: cluster.described("one").acked > before)


def test_a_killed_nimbus_is_followed_by_the_standby_and_nothing_is_lost(up: Standing, tmp_path: Path) -> None:
    up.ok("submit", f"{ENDLESS}:marked", "--name", "one", "--workers", "2", "--", tmp_path)
    await_acks(up)
    first = up.nimbus()
    [standby] = set(nimbuses(up)) - {first}
    first.kill()
    assert next_nimbus(up, first) == standby
    wait_for("a supervisor to do it", lambda: up.run("inject", "kill", "nimbus").returncode == 0)
    next_nimbus(up, standby)
    await_acks(up)
    done = len(list(tmp_path.glob("done-*")))
    (tmp_path / "limit").write_text(str(done + 100))
    wait_for("the end", lambda: up.described("one").status == "FINISHED")
    assert {path.name for path in tmp_path.glob("done-*")} >= {f"done-{n}" for n in range(done + 100)}
    assert [death["reason"] for death in up.json("status")["daemon_deaths"]] == ["killed by SIGKILL"] * 2
    up.ok("kill", "one")
    wait_for("its end", lambda: up.run("list").stdout == "no topologies\n")


def test_a_nimbus_that_stands_still_gives_way(up: Standing) -> None:
    up.ok("submit", ENDLESS, "--name", "one")
    stopped = up.nimbus()
    stopped.suspend()
    next_nimbus(up, stopped)
    assert "one" in up.ok("list")
    await_acks(up)


def test_a_nimbus_whose_session_is_lost_ends(up: Standing) -> None:
    hosts, path = place_of(up.run_dir)
    former = nimbuses(up)
    for each in former:
        each.suspend()
    with talking_to(hosts) as client:
        wait_for("the end of both sessions", lambda: client.get_children(f"{path}/nimbus") == [])
    for each in former:
        each.resume()
    wait_for("two others", lambda: len(found := nimbuses(up)) == 2 and not set(found) & set(former))
    wait_for("an answer", lambda: up.run("status").returncode == 0)
    logs = [up.run_dir.daemon_log(name).read_text() for name in ("nimbus", "nimbus-2")]
    assert any("the session with ZooKeeper is lost: ending" in log for log in logs)


def test_zookeeper_may_die_and_come_back(up: Standing, server: ZooKeeperServer) -> None:
    up.ok("submit", ENDLESS, "--name", "one")
    await_acks(up)
    server.kill()
    await_acks(up)
    why = f"in ZooKeeper at {server.hosts} does not answer, so the change is made, or not: is that server up?"
    assert why in up.refused(1, "deactivate", "one")
    assert f" is away (it waits if ZooKeeper at {server.hosts} is away), " in up.run("status").stderr
    server.start()
    wait_for("Nimbus", lambda: up.run("deactivate", "one").returncode == 0)
    up.ok("activate", "one")
    await_acks(up)


def test_a_cluster_goes_on_after_down_and_up_where_its_store_is_and_nowhere_else(
    cluster: Standing, server: ZooKeeperServer
) -> None:
    up = ("up", "--slots", "2", "--detach", "--zookeeper")
    cluster.ok(*up, f"{server.hosts}/here")
    cluster.ok("submit", ENDLESS, "--name", "one")
    await_acks(cluster)
    assert cluster.json("down")["killed"] == 0
    assert processes_of(cluster.run_dir) == []
    assert cluster.run("clean").returncode == 0
    for hosts in (server.hosts, "localhost:1/here"):
        with pytest.raises(UsageError, match=f" has its store at {server.hosts}/here: leave the option out; other "):
            put_in_zookeeper(cluster.run_dir, hosts, print)
    assert "one" in cluster.ok(*up, f"{server.hosts}/here")
    await_acks(cluster)
    cluster.ok("down", "-w", "0")
    hosts, path = place_of(cluster.run_dir)
    with talking_to(hosts) as client:
        client.delete(path, recursive=True)
    # What ZooKeeper has lost is not made anew.
    with pytest.raises(StoreError, match=f"store {path}/store in ZooKeeper at {hosts} is missing, though"):
        open_store(cluster.run_dir)


def waits_for(hosts: str, waiting: subprocess.Popen[str]) -> None:
    assert waiting.stderr is not None
    assert waiting.stderr.readline() == f"waiting for ZooKeeper at {hosts}\n"


def test_a_cluster_waits_for_zookeeper_at_its_start_and_can_be_ended_while_it_waits(
    cluster: Standing, server: ZooKeeperServer
) -> None:
    server.kill()
    with start("up", "--detach", "--zookeeper", server.hosts, SQUALL_DIR=str(cluster.path)) as waiting:
        try:
            waits_for(server.hosts, waiting)
            server.start()
            assert waiting.wait(100) == 0
        finally:
            waiting.kill()
    server.kill()
    former = nimbuses(cluster)
    for each in former:
        each.kill()
    logs = [cluster.run_dir.daemon_log(name) for name in ("nimbus", "nimbus-2")]
    told = f"waiting for ZooKeeper at {server.hosts}\n"
    wait_for("both to wait", lambda: all(told in log.read_text() for log in logs))
    cluster.ok("down")
    assert processes_of(cluster.run_dir) == []
    with start("up", SQUALL_DIR=str(cluster.path)) as waiting:
        waits_for(server.hosts, waiting)
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(100) == 130


def test_an_embedded_store_is_not_forgotten(cluster: Standing) -> None:
    open_store(RunDir.create(cluster.path)).close()
    refused = cluster.refused(2, "up", "--zookeeper", "localhost")
    assert refused == f"--zookeeper: {cluster.path} has its store in nimbus.db: choose another directory"


@pytest.mark.parametrize("hosts", ["", "one:port", "one:1/../x", "zk://one"])
def test_hosts_that_are_none_are_refused(tmp_path: Path, hosts: str) -> None:
    allowed = "; allowed: HOST:PORT, several of them with commas, and then /FOLDER"
    with pytest.raises(UsageError, match=f"^--zookeeper {hosts!r}: .*{allowed}$"):
        put_in_zookeeper(RunDir(tmp_path), hosts, print, lambda: True)


def test_a_server_that_never_answered_is_not_noted(tmp_path: Path) -> None:
    told = list[str]()
    put_in_zookeeper(RunDir.create(tmp_path / "c"), "localhost:1", told.append, lambda: bool(told))
    assert told == ["waiting for ZooKeeper at localhost:1"]
    assert not RunDir(tmp_path / "c").zookeeper.exists()


def test_without_kazoo_it_says_what_to_install(cluster: Standing, tmp_path: Path) -> None:
    (tmp_path / "kazoo.py").write_text("raise ModuleNotFoundError('not here')\n")
    refused = cluster.refused(2, "up", "--zookeeper", "localhost", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert refused == "ZooKeeper needs another package: pip install 'squall[zookeeper]' (not here)"
