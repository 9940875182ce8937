"""Wrong use of a standing cluster: one clear line, the right exit code, nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from squall.scheduler.common.mark import processes_of
from tests.process.cli import ROOT, command, environment
from tests.process.standing_tools import ENDLESS, Standing, directory
from tests.process.waiting import wait_for

COMMANDS = [
    ("submit", ENDLESS, "--name", "x"), ("list",), ("status",), ("status", "x"), ("activate", "x"), ("deactivate", "x"),
    ("rebalance", "x", "-n", "1"), ("reset", "x"), ("kill", "x"),
]


@pytest.fixture
def cluster() -> Iterator[Standing]:
    with directory() as made:
        yield made


def test_a_cluster_that_is_not_there(cluster: Standing) -> None:
    message = f"there is no cluster at {cluster.path}: start one with `squall up --dir {cluster.path}`"
    for arguments in (("list",), ("logs", "x"), ("down",)):
        assert cluster.refused(2, *arguments) == message
    assert not cluster.path.exists()
    cluster.path.mkdir(mode=0o700)  # such as a container's volume before the first start
    assert cluster.refused(2, "list") == message


def test_the_default_directory_is_one_per_user() -> None:
    with directory() as cluster:
        where = {"XDG_RUNTIME_DIR": str(cluster.path.parent), "SQUALL_DIR": ""}
        path = cluster.path.parent / "squall" / "cluster"
        assert cluster.refused(2, "list", **where) == f"there is no cluster at {path}: start one with `squall up`"
        (cluster.path.parent / "squall").chmod(0o755)
        assert "has mode 0755, must be 0700" in cluster.refused(2, "list", **where)
        (cluster.path.parent / "squall").rmdir()


def test_a_directory_whose_daemons_are_dead(cluster: Standing) -> None:
    cluster.up(slots=1)
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


@pytest.mark.parametrize("frozen", [False, True])
def test_up_takes_over_workers_that_outlived_every_daemon(cluster: Standing, frozen: bool) -> None:
    cluster.up(slots=1)
    cluster.ok("submit", ENDLESS, "--name", "one", *(("--set", "worker_timeout_secs=2") if frozen else ()))
    wait_for("acks", lambda: cluster.described("one")["acked"] > 0)
    (worker,) = cluster.described("one")["workers"]
    daemons = [cluster.keeper(), cluster.nimbus(), cluster.supervisor("node-1")]
    # All at once: none of them sees another's end.
    for daemon in daemons:
        daemon.suspend()
    for daemon in daemons:
        daemon.kill()
    wait_for("the end of Nimbus", lambda: cluster.run_dir.lock_holder() is None)
    if frozen:
        os.kill(worker["pid"], signal.SIGSTOP)
    cluster.up(slots=1)
    if frozen:
        wait_for("its end", lambda: not psutil.pid_exists(worker["pid"]))
    before = cluster.described("one")["acked"]
    wait_for("more acks", lambda: cluster.described("one")["acked"] > before)
    (adopted,) = cluster.described("one")["workers"]
    assert (adopted["pid"] == worker["pid"]) is not frozen
    assert cluster.json("kill", "one")["pending"] == 0


def test_a_second_up_changes_nothing(cluster: Standing) -> None:
    cluster.up(slots=1)
    cluster.ok("submit", ENDLESS, "--name", "one")
    for detach in ((), ("--detach",)):
        message = cluster.refused(2, "up", *detach)
        assert message.startswith(f"a cluster runs in {cluster.path} already (Nimbus is pid ")
        assert message.endswith("): `squall status` shows it, `squall down` stops it")
    assert "another Nimbus" in (message := cluster.run("nimbus").stderr) or "in use by pid" in message
    wait_for("acks", lambda: cluster.described("one")["acked"] > 0)


def test_names_and_numbers_that_cannot_be(cluster: Standing) -> None:
    for arguments, message in (
        (("up", "--nodes", "0"), "nodes is 0; allowed: an integer from 1 up"),
        (("supervisor", "--node", "a", "--slots", "0"), "slots is 0; allowed: an integer from 1 up"),
    ):
        assert cluster.refused(2, *arguments) == message
    for arguments, what in (
        (("up", "--nodes", "1000000000"), "nodes"), (("up", "--slots", "1000000000"), "slots"),
        (("up", "--detach", "--nodes", "1000000000"), "nodes"),
        (("supervisor", "--node", "a", "--slots", "1000000000"), "slots"),
        (("run", ENDLESS, "--nodes", "1000000000"), "nodes"),
    ):
        assert cluster.refused(2, *arguments).startswith(f"{what} is 1000000000")
    assert not cluster.path.exists()
    cluster.up(slots=1)
    assert cluster.refused(2, "status", "one") == "there is no topology named 'one'; running: none"
    cluster.ok("submit", ENDLESS, "--name", "word-count")
    near = "there is no topology named 'word_count'; did you mean 'word-count'? Running: 'word-count'"
    alone = [(word,) for word in ("status", "activate", "deactivate", "kill", "reset", "rebalance")]
    for arguments in (*alone, ("rebalance", "-n", "1")):
        assert cluster.refused(2, *arguments, "word_count") == near
        assert cluster.refused(2, *arguments, "WORD-COUNT") == near.replace("word_count", "WORD-COUNT")
    cluster.run_dir.topology_state("word-count").mkdir(exist_ok=True)
    wait_for("its logs", lambda: any(path.is_dir() for path in cluster.run_dir.logs.iterdir()))
    for arguments in (("logs",), ("dead-letters", "--dir", cluster.path)):
        assert "; did you mean 'word-count'? " in cluster.refused(2, *arguments, "WORD-Count")
    move = ("rebalance", "word-count")
    for arguments, message in (
        ((*move, "-e", "nothing"), "-e 'nothing' is not understood; write COMPONENT=N, e.g. -e count=2"),
        ((*move, "-e", "nothing=9"), "component 'nothing' cannot have 9 executors; allowed: 1 to 2"),
        ((*move, "-n", "0"), "workers is 0; allowed: an integer from 1 to 1024"),
        (("supervisor", "--node", "a/b"), "is not allowed"),
    ):
        assert message in cluster.refused(2, *arguments)
    assert cluster.json("status", "word-count")["status"] == "ACTIVE"


def kept_files(path: Path) -> dict[str, bytes]:
    """What is in the folders of a run directory that a name may lead to."""
    folders = ("boards", "code", "logs", "n", "s", "state")
    files = (file for folder in folders for file in (path / folder).rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


BAD_NAMES = [
    ("", "is not allowed"), (".", "is not allowed"), ("..", "is not allowed"), ("a/b", "is not allowed"),
    ("n" * 300, "is too long; allowed: at most 64 characters and 200 bytes"),
    ("__x", "begins with '__'; such names are the system's"),
]


def test_a_bad_name_destroys_nothing(cluster: Standing, tmp_path: Path) -> None:
    cluster.up(slots=1)
    position = cluster.run_dir.topology_state("kept") / "spout-0" / "position"
    position.parent.mkdir(parents=True)
    position.write_text("12")
    before = kept_files(cluster.path)
    assert before
    touching = tmp_path / "touching.py"
    touching.write_text(f"open({str(tmp_path / 'touched')!r}, 'w')\n")
    for name, message in BAD_NAMES:
        for line in (
            ("submit", touching, "--fresh", "--name", name),
            ("submit", touching, "--name", name),
            ("run", touching, "--name", name),
            ("run", touching, "--local", "--name", name),
        ):
            assert message in cluster.refused(2, *line)
    for name, _ in BAD_NAMES:
        for line in (("logs",), ("dead-letters", "--dir", cluster.path), ("status",), ("kill",), ("reset",)):
            cluster.refused(2, *line, "--", name)
    cluster.refused(2, "dead-letters", "--replay", "--dir", cluster.path, "--", "..")
    after = kept_files(cluster.path)
    assert [name for name, content in before.items() if not after.get(name, b"").startswith(content)] == []
    assert not (tmp_path / "touched").exists()


def test_a_path_too_long_for_sockets(cluster: Standing) -> None:
    message = cluster.refused(2, "up", "--detach", "--dir", cluster.path.parent / ("x" * 100))
    assert "choose a run directory with a shorter path" in message


def test_a_directory_of_somebody_elses_files(cluster: Standing, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    tmp_path.chmod(0o700)
    message = cluster.refused(2, "up", "--detach", "--dir", tmp_path)
    assert message == f"{tmp_path} is neither empty nor a run directory: choose another"
    assert "it has no file 'key'" in cluster.refused(2, "down", "--dir", tmp_path)


def limited(resource_name: str, limit: int, *arguments: str | Path) -> list[str]:
    """The command line of a squall command that runs under a limit of its own."""
    program = (
        "import os, resource, sys\n"
        f"resource.setrlimit(resource.{resource_name}, ({limit}, {limit}))\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    return [sys.executable, "-c", program, *command(*arguments)]


@pytest.mark.slow
def test_a_disk_that_fills_up_costs_no_accepted_topology(cluster: Standing) -> None:
    """Nimbus ends rather than go on with a memory that is not on disk; workers run on, and the next one knows all."""
    variables = environment(SQUALL_DIR=str(cluster.path))
    line = limited("RLIMIT_FSIZE", 60 * 1024, "up", "--slots", "1", "--detach")
    subprocess.run(line, env=variables, cwd=ROOT, check=True, capture_output=True, timeout=100)
    accepted = []
    for number in range(20):
        done = cluster.run("submit", ENDLESS, "--name", f"t{number}")
        if done.returncode:
            break
        accepted.append(f"t{number}")
    assert done.returncode == 1
    assert done.stderr.startswith(f"squall: store {cluster.path}/nimbus.db: ")
    assert accepted
    log = cluster.run_dir.daemon_log("keeper")
    wait_for("the end of Nimbus", lambda: "nimbus exited with code 1" in log.read_text())
    before = {process.pid for process in processes_of(cluster.run_dir)}
    # The keeper brings the next one.
    wait_for("the next Nimbus", lambda: cluster.run("status").returncode == 0)
    assert [row["name"] for row in cluster.json("list")["topologies"]] == accepted
    wait_for("its node", lambda: cluster.json("status")["nodes"])
    assert cluster.described("t0")["workers"][0]["pid"] in before
    cluster.ok("down", "-w", "0")
