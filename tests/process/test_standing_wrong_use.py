"""Wrong use of a standing cluster: one clear line, the right exit code, nothing lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil

from squall.scheduler.common.role import processes_of
from tests.process.cli import start
from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for
from tests.unit.full_disk import no_room

COMMANDS = [
    ("submit", ENDLESS, "--name", "x"), ("list",), ("status",), ("status", "x"), ("activate", "x"), ("deactivate", "x"),
    ("rebalance", "x", "-n", "1"), ("reset", "x"), ("kill", "x"),
]


def test_a_cluster_that_is_not_there(cluster: Standing) -> None:
    message = f"there is no cluster at {cluster.path}: start one with `squall up --dir {cluster.path}`"
    for arguments in (("list",), ("logs", "x"), ("down",)):
        assert cluster.refused(2, *arguments) == message
    assert not cluster.path.exists()
    cluster.path.mkdir(mode=0o700)  # such as a container's volume before the first start
    assert cluster.refused(2, "list") == message
    with no_room(8 << 10):
        assert cluster.refused(1, "up").endswith("at most, 16,777,216 are needed: ulimit -f unlimited")


def test_a_second_up_changes_nothing_and_one_without_daemons_says_so(cluster: Standing) -> None:
    cluster.up(slots=1)
    for detach in ((), ("--detach",)):
        message = cluster.refused(2, "up", *detach)
        assert message.startswith(f"a cluster runs in {cluster.path} already (Nimbus is pid ")
        assert message.endswith("): `squall status` shows it, `squall down` stops it")
    assert "another Nimbus" in (message := cluster.run("nimbus").stderr) or "in use by pid" in message
    cluster.ok("submit", ENDLESS, "--name", "one")
    wait_for("acks", lambda: cluster.described("one").acked > 0)
    cluster.ok("kill", "one", "-w", "0")

    cluster.lose_keeper()
    holder = cluster.run_dir.lock_holder()
    assert holder is not None
    os.kill(int(holder), signal.SIGKILL)
    wait_for("the end of Nimbus", lambda: cluster.run_dir.lock_holder() is None)
    message = cluster.refused(2, "up", "--detach")
    assert message.startswith(f"2 processes of an earlier cluster still run in {cluster.path}, without Nimbus")
    cluster.ok("down")
    for arguments in COMMANDS:
        hint = f"start one with `squall up --dir {cluster.path}`"
        assert cluster.refused(2, *arguments) == f"no cluster runs in {cluster.path}: {hint}"
    cluster.up(slots=1)
    assert cluster.json("list")["topologies"] == []


def test_up_takes_over_workers_that_outlived_every_daemon(cluster: Standing) -> None:
    cluster.up(slots=2)
    workers = dict[str, int]()
    for name, settings in (("one", ()), ("frozen", ("--set", "worker_timeout_secs=2"))):
        cluster.ok("submit", ENDLESS, "--name", name, *settings)
        wait_for("acks", lambda name=name: cluster.described(name).acked > 0)
        workers[name] = cluster.described(name).workers[0].pid
    daemons = [cluster.keeper(), cluster.nimbus(), cluster.supervisor("node-1")]
    # All at once: none of them sees another's end.
    for daemon in daemons:
        daemon.suspend()
    for daemon in daemons:
        daemon.kill()
    wait_for("the end of Nimbus", lambda: cluster.run_dir.lock_holder() is None)
    os.kill(workers["frozen"], signal.SIGSTOP)
    cluster.up(slots=2)
    wait_for("its end", lambda: not psutil.pid_exists(workers["frozen"]))
    for name, pid in workers.items():
        before = cluster.described(name).acked
        wait_for("more acks", lambda name=name, before=before: cluster.described(name).acked > before)
        (adopted,) = cluster.described(name).workers
        assert (adopted.pid == pid) is (name == "one")
        assert cluster.json("kill", name)["pending"] == 0


def test_a_directory_of_somebody_elses_files(cluster: Standing, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    tmp_path.chmod(0o700)
    message = cluster.refused(2, "up", "--detach", "--dir", tmp_path)
    assert message == f"{tmp_path} is neither empty nor a run directory: choose another"
    assert "it has no file 'key'" in cluster.refused(2, "down", "--dir", tmp_path)


def at_once(*lines: list[str]) -> list[tuple[int, str]]:
    """Exit code and stderr of each, the one that succeeded first."""
    processes = [start(*line) for line in lines]
    ends = [(process.communicate(timeout=100)[1], process.returncode) for process in processes]
    return sorted((code, err) for err, code in ends)


def test_three_ups_and_four_downs(cluster: Standing) -> None:
    line = ["up", "--detach", "--slots", "1", "--dir", str(cluster.path)]
    (won, _), *others = at_once(line, line, line)
    assert won == 0
    for code, err in others:
        assert code == 2
        assert err.count("\n") == 1
        assert "a cluster is being started in" in err or "a cluster runs in" in err
    assert len(cluster.json("status")["nodes"]) == 1
    line = ["down", "--dir", str(cluster.path)]
    assert at_once(*[line] * 4) == [(0, "")] * 4
    assert processes_of(cluster.run_dir) == []
