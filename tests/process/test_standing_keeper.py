"""Daemons of a standing cluster that are killed: another one at once, and nothing that ran notices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from squall.ipc.run_parent import try_flock
from squall.scheduler.common.mark import processes_of, role_of
from squall.scheduler.common.process_title import RoleKind
from squall.scheduler.supervisor.history import read_history
from tests.process.cli import start
from tests.process.history_check import broken_rules
from tests.process.standing_tools import ENDLESS, Standing, directory
from tests.process.waiting import wait_for


@pytest.fixture
def cluster() -> Iterator[Standing]:
    with directory() as made:
        yield made


def workers(cluster: Standing) -> list[int]:
    return [row["pid"] for row in cluster.described("one")["workers"] if row["state"] == "ready"]


def submit_two_workers(cluster: Standing) -> list[int]:
    cluster.ok("submit", ENDLESS, "--name", "one", "--workers", "2")
    return wait_for("both workers", lambda: len(found := workers(cluster)) == 2 and found)


def test_a_killed_nimbus_comes_back_and_commands_wait_for_it(cluster: Standing) -> None:
    cluster.up(slots=2)
    before = submit_two_workers(cluster)
    killed = cluster.nimbus()
    # Without the keeper held, the next Nimbus could be there before the command has asked for the first.
    with cluster.keeper_held() as keeper:
        killed.kill()
        wait_for("the end of Nimbus", lambda: killed.status() == psutil.STATUS_ZOMBIE)
        with start("deactivate", "one", SQUALL_DIR=str(cluster.path)) as waiting:
            assert waiting.stderr is not None
            assert waiting.stderr.readline() == "Nimbus is away, waiting for it for up to 5 s\n"
            keeper.resume()
            _, err = waiting.communicate(timeout=100)
    assert (waiting.returncode, err) == (0, "")
    assert cluster.nimbus().pid != killed.pid
    assert workers(cluster) == before
    cluster.ok("activate", "one")
    acked = cluster.described("one")["acked"]
    wait_for("more acks", lambda: cluster.described("one")["acked"] > acked)
    assert cluster.json("down")["killed"] == 0


def test_a_killed_supervisors_workers_are_adopted_and_can_be_told_things(
    cluster: Standing, record_property: Callable[[str, object], None]
) -> None:
    cluster.up(slots=2)
    before = submit_two_workers(cluster)
    killed_at = time.monotonic()
    cluster.supervisor("node-1").kill()

    def adopted() -> list[float]:
        steps = [step for step in read_history(cluster.run_dir.logs) if step.at_secs > killed_at]
        return [step.at_secs for step in steps if step.event == "ready"]

    wait_for("both adopted", lambda: len(adopted()) == 2)
    millis = (max(adopted()) - killed_at) * 1000
    record_property("supervisor_death_to_adopted_ms", millis)
    print(f"from the death of the supervisor to all workers adopted: {millis:.0f} ms")
    cluster.ok("deactivate", "one")
    # At rest only if every worker has heard of it.
    assert cluster.json("kill", "one")["pending"] == 0
    steps = read_history(cluster.run_dir.logs)
    assert "cannot be reached" not in cluster.run_dir.daemon_log("supervisor-node-1").read_text()
    assert {step.pid for step in steps if step.event in ("started", "stopped")} == set(before)
    assert broken_rules(cluster.run_dir) == []


def daemons(cluster: Standing) -> set[psutil.Process]:
    kinds = (RoleKind.NIMBUS, RoleKind.SUPERVISOR)
    found = processes_of(cluster.run_dir)
    return {process for process in found if (role := role_of(process)) is not None and role.kind in kinds}


def test_what_a_killed_keeper_kept_runs_on_and_the_next_up_adopts_it(cluster: Standing) -> None:
    cluster.up(nodes=2, slots=2)
    before = submit_two_workers(cluster)
    first = daemons(cluster)
    keeper = cluster.keeper()
    keeper.kill()
    wait_for("its end", lambda: not keeper.is_running())
    acked = cluster.described("one")["acked"]
    wait_for("more acks", lambda: cluster.described("one")["acked"] > acked)
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
    assert cluster.json("down")["pending"] == {"one": 0}
    assert processes_of(cluster.run_dir) == []
    assert not cluster.run_dir.keeper_lock.exists()
    assert broken_rules(cluster.run_dir) == []


def test_a_second_keeper_is_impossible(cluster: Standing) -> None:
    cluster.up(slots=1)
    assert try_flock(cluster.run_dir.keeper_lock) is None
    for detached in ([], ["--detach"]):
        assert "a cluster runs in" in cluster.refused(2, "up", *detached)


def test_who_ends_a_cluster_without_nimbus_ends_the_keeper_for_good(cluster: Standing) -> None:
    cluster.up(nodes=2, slots=1)
    with cluster.keeper_held() as keeper:
        cluster.nimbus().suspend()
        assert cluster.json("down")["killed"] > 0
        assert not keeper.is_running() or keeper.status() == psutil.STATUS_ZOMBIE
    assert processes_of(cluster.run_dir) == []


@pytest.mark.slow
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
