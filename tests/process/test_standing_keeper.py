"""Daemons of a standing cluster that are killed: another one at once, and nothing that ran notices."""

from __future__ import annotations

import psutil
import pytest

from squall.ipc.run_parent import try_flock
from squall.scheduler.cluster import stopping
from squall.scheduler.common.role import RoleKind, processes_of
from tests.process.history_check import broken_rules
from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for


def workers(cluster: Standing) -> list[int]:
    return [row.pid for row in cluster.described("one").workers if row.state == "ready"]


def submit(cluster: Standing, workers_wanted: int = 2) -> list[int]:
    # Processes are counted, and a spare comes later.
    cluster.ok("submit", ENDLESS, "--name", "one", "--workers", str(workers_wanted), "--set", "warm_spare=false")
    return wait_for("the workers", lambda: len(found := workers(cluster)) == workers_wanted and found)


def daemons(cluster: Standing) -> set[psutil.Process]:
    return set(processes_of(cluster.run_dir, RoleKind.NIMBUS, RoleKind.SUPERVISOR))


def test_what_a_killed_keeper_kept_runs_on_and_the_next_up_adopts_it(cluster: Standing) -> None:
    cluster.up(nodes=2, slots=2)
    before = submit(cluster)
    first = daemons(cluster)
    assert try_flock(cluster.run_dir.keeper_lock) is None, "a second keeper is impossible"
    keeper = cluster.keeper()
    keeper.kill()
    wait_for("its end", lambda: not keeper.is_running())
    assert "its keeper has died: `squall up` starts one" in cluster.ok("status")
    acked = cluster.described("one").acked
    wait_for("more acks", lambda: cluster.described("one").acked > acked)
    # Nobody brings back what dies now.
    killed = cluster.supervisor("node-2")
    killed.kill()
    wait_for("its end", lambda: not killed.is_running())
    assert daemons(cluster) == first - {killed}
    cluster.up(nodes=2, slots=2)
    assert len(daemons(cluster)) == 3
    assert not daemons(cluster) & first
    wait_for("both nodes", lambda: len(cluster.json("status")["nodes"]) == 2)
    assert workers(cluster) == before
    # Its keeper keeps them.
    nimbus = cluster.nimbus()
    nimbus.kill()
    wait_for("another Nimbus", lambda: cluster.nimbus().pid != nimbus.pid)
    status = cluster.json("status")
    assert not status["keeper_gone"]
    deaths = [(death["daemon"], death["reason"]) for death in status["daemon_deaths"]]
    assert deaths == [("keeper", "killed: noted by the next one"), ("nimbus", "killed by SIGKILL")]
    assert " nimbus: killed by SIGKILL\n" in cluster.ok("status")
    assert cluster.json("down")["pending"] == {"one": 0}
    assert processes_of(cluster.run_dir) == []
    assert not cluster.run_dir.keeper_lock.exists()
    assert broken_rules(cluster.run_dir) == []


def test_a_daemon_that_stands_still_is_ended_with_the_cluster_which_then_goes_on(
    cluster: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "ANSWER_SECS", 2.0)
    cluster.up(slots=1)
    before = submit(cluster, workers_wanted=1)
    for stopped in (RoleKind.NIMBUS, RoleKind.SUPERVISOR):
        with cluster.keeper_held() as keeper:
            processes_of(cluster.run_dir, stopped)[0].suspend()
            done = cluster.run("down", "-w", "1")
            assert (done.returncode, done.stdout.startswith(f"cluster in {cluster.path} is stopped")) == (0, True)
            told = "Nimbus does not answer; ended 4 processes without draining\n" in done.stderr
            assert told == (stopped is RoleKind.NIMBUS)
            assert not keeper.is_running() or keeper.status() == psutil.STATUS_ZOMBIE
        assert processes_of(cluster.run_dir) == []
        cluster.up(slots=1)
        before = wait_for("another worker", lambda before=before: (found := workers(cluster)) != before and found)


@pytest.mark.nightly
def test_a_daemon_that_cannot_run_is_not_tried_for_ever(cluster: Standing) -> None:
    cluster.up(slots=2)
    # Somebody's file where the store should be: every new Nimbus refuses it.
    killed = cluster.nimbus()
    store = cluster.run_dir.nimbus_db.read_bytes()
    copy = cluster.run_dir.nimbus_db.with_suffix(".db.copy")
    for path in (cluster.run_dir.nimbus_db, copy):
        path.write_bytes(b"no store")
    killed.kill()
    log = cluster.run_dir.daemon_log("keeper")
    wait_for("a back-off", lambda: "it is started again in 0." in log.read_text())
    assert "at once" in log.read_text()
    cluster.run_dir.nimbus_db.write_bytes(store)
    wait_for("Nimbus, when it can run again", lambda: cluster.run("list").returncode == 0)
