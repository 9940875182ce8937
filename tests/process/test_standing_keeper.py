"""Daemons of a standing cluster that are killed: another one at once, and nothing that ran notices."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
import zmq

from squall.cli.standing import job_of
from squall.ipc.run_parent import try_flock
from squall.ipc.rundir import RunDir
from squall.scheduler.cluster import standing
from squall.scheduler.common.keeper_watch import KeeperWatch
from squall.scheduler.common.mark import processes_of, role_of
from squall.scheduler.common.process_record import read_record
from squall.scheduler.common.process_title import Kind, Role
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


def test_down_waits_for_the_next_keeper(cluster: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeper and Nimbus are dead, and the supervisor that starts the next keeper has not done so yet."""
    cluster.up()
    supervisor, killed = cluster.supervisor("node-1"), [cluster.keeper(), cluster.nimbus()]
    supervisor.suspend()
    for process in killed:
        process.kill()
    psutil.wait_procs(killed, timeout=60)

    def look(run_dir: RunDir) -> list[psutil.Process]:
        found = processes_of(run_dir)
        supervisor.resume()
        return found

    monkeypatch.setattr(standing, "processes_of", look)
    done = cluster.run("down")
    assert done.returncode == 0
    assert "undrained" not in done.stderr, done.stderr


def test_in_the_foreground_the_command_replaces_them(cluster: Standing) -> None:
    address = str(cluster.path.parent / "n")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd,
        start("up", "--slots", "2", SQUALL_DIR=str(cluster.path), NOTIFY_SOCKET=address) as process,
    ):
        systemd.bind(address)
        systemd.settimeout(60)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert systemd.recv(64) == b"READY=1"
            before = submit_two_workers(cluster)
            first, supervisor = cluster.nimbus(), cluster.supervisor("node-1")
            for daemon in (first, supervisor):
                daemon.kill()
            wait_for("another Nimbus", lambda: cluster.nimbus().pid != first.pid)
            wait_for("the node", lambda: cluster.json("status")["nodes"])
            assert cluster.supervisor("node-1").pid != supervisor.pid
            assert workers(cluster) == before
            keeper = cluster.keeper()
            keeper.kill()
            replaced = next_keeper(cluster, keeper)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=100)
        finally:
            process.kill()
            os.unlink(address)
    assert process.returncode == 130, err
    assert "nimbus was killed by SIGKILL" in err
    assert "supervisor-node-1 was killed by SIGKILL" in err
    assert "it is started again at once" in err
    wait_for("the end of the keeper that took over", lambda: not psutil.pid_exists(replaced.pid))
    assert broken_rules(cluster.run_dir) == []


def keepers(cluster: Standing) -> list[int]:
    return [process.pid for process in processes_of(cluster.run_dir) if role_of(process) == Role(Kind.KEEPER)]


def next_keeper(cluster: Standing, *killed: psutil.Process) -> psutil.Process:
    """The one that has said that it is the keeper."""
    pids = {process.pid for process in killed}

    def found() -> psutil.Process | None:
        record = read_record(cluster.run_dir.keeper_record)
        return psutil.Process(record.pid) if record is not None and record.lives and record.pid not in pids else None

    return wait_for("another keeper", found)


def test_a_killed_keeper_is_replaced_and_the_next_one_keeps_what_runs(cluster: Standing) -> None:
    cluster.up(nodes=2, slots=2)
    before = submit_two_workers(cluster)
    daemons = {cluster.nimbus().pid, *(cluster.supervisor(node).pid for node in ("node-1", "node-2"))}
    killed = []
    for _ in range(2):
        killed.append(cluster.keeper())
        killed[-1].kill()
        assert next_keeper(cluster, *killed).pid in keepers(cluster)
        wait_for("the end of those that were not needed", lambda: len(keepers(cluster)) == 1)
    assert {cluster.nimbus().pid, *(cluster.supervisor(node).pid for node in ("node-1", "node-2"))} == daemons
    assert workers(cluster) == before
    # It keeps what it did not start.
    first, supervisor = cluster.nimbus(), cluster.supervisor("node-2")
    first.kill()
    supervisor.kill()
    wait_for("another Nimbus", lambda: cluster.nimbus().pid != first.pid)
    wait_for("both nodes", lambda: len(cluster.json("status")["nodes"]) == 2)
    assert cluster.supervisor("node-2").pid != supervisor.pid
    assert cluster.json("down")["pending"] == {"one": 0}
    assert processes_of(cluster.run_dir) == []
    assert "Traceback" not in cluster.run_dir.daemon_log("keeper").read_text()


def test_keeper_and_nimbus_killed_together_both_come_back(cluster: Standing) -> None:
    cluster.up(slots=2)
    before = submit_two_workers(cluster)
    keeper, first = cluster.keeper(), cluster.nimbus()
    with cluster.keeper_held():
        first.kill()
        keeper.kill()
    next_keeper(cluster, keeper)
    wait_for("another Nimbus", lambda: cluster.nimbus().pid != first.pid)
    assert workers(cluster) == before
    # One that is told to end stays away, also under a keeper that is not its parent.
    cluster.supervisor("node-1").terminate()
    # Not only until it is off the list, where a new Nimbus has none at first: `down` kills what is still ending.
    wait_for("keeper and Nimbus alone", lambda: len(processes_of(cluster.run_dir)) == 2)
    wait_for("the node to leave", lambda: not cluster.json("status")["nodes"])
    assert cluster.json("down", "-w", "0")["killed"] == 0


def test_a_second_keeper_is_impossible(cluster: Standing) -> None:
    cluster.up(slots=1)
    record = read_record(cluster.run_dir.keeper_record)
    assert record is not None
    assert try_flock(cluster.run_dir.keeper_lock) is None
    # As a daemon would start it that takes the keeper for dead by mistake: without the lock there is no way to.
    watch = KeeperWatch(cluster.run_dir, zmq.Poller(), None, random.Random(1))
    watch.look(time.monotonic())
    assert keepers(cluster) == [record.pid]
    watch.close()


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
    cluster.run_dir.nimbus_db.write_bytes(b"no store")
    killed.kill()
    log = cluster.run_dir.daemon_log("keeper")
    wait_for("a back-off", lambda: "it is started again in 0." in log.read_text())
    assert "at once" in log.read_text()
    cluster.run_dir.nimbus_db.write_bytes(store)
    wait_for("Nimbus, when it can run again", lambda: cluster.run("list").returncode == 0)


def test_what_changed_while_the_supervisor_was_away_is_told_to_its_workers(cluster: Standing) -> None:
    cluster.up(slots=2)
    before = submit_two_workers(cluster)
    with cluster.keeper_held():
        cluster.supervisor("node-1").kill()
        cluster.ok("deactivate", "one")

    def at_rest() -> bool:
        with job_of(str(cluster.path), "one") as job:
            view = job.view()
            return view is not None and view.is_at_rest()

    wait_for("both workers to have heard of it", at_rest)
    assert workers(cluster) == before
    assert cluster.described("one")["restarts_total"] == 0
