"""Run by `test_full_disk` where it may mount: a cluster on a file system of its own, filled to the last byte."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for

SIZE = "16m"
CHUNK_BYTES = 4096


def fill(path: Path) -> None:
    """Until the kernel says ENOSPC, to this and to everybody else."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            os.write(fd, b"x" * CHUNK_BYTES)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    finally:
        os.close(fd)


def serves(cluster: Standing) -> bool:
    """It answers a question, and has taken none of the changes for made that it could not keep."""
    done = cluster.run("list", "--json")
    return done.returncode == 0 and [row["name"] for row in json.loads(done.stdout)["topologies"]] == ["first"]


def ends_of_it(cluster: Standing, filler: Path, *arguments: str) -> None:
    """Nimbus cannot keep a change: it says so and ends, and the next one, of which nothing is asked, serves."""
    fill(filler)
    message = cluster.refused(1, *arguments)
    assert message.startswith(f"store {cluster.path}/nimbus.db: "), (arguments, message)
    assert message.endswith(("database or disk is full", "No space left on device")), message
    wait_for("the next Nimbus, on a full disk", lambda: serves(cluster))


def ends_by_itself(cluster: Standing, filler: Path) -> None:
    """Nimbus ends when nobody asks it anything: who asks then is told why."""
    with cluster.keeper_held():
        os.kill(cluster.described("first").workers[0].pid, signal.SIGKILL)
        wait_for("its end, of a death that cannot be kept", lambda: cluster.run_dir.lock_holder() is None)
        message = cluster.run("list").stderr
        assert f"is away (cannot write to {cluster.path}: No space left on device)" in message, message
        filler.unlink()


def scenario(cluster: Standing, filler: Path) -> None:
    fill(filler)
    message = cluster.refused(1, "up", "--detach")
    assert "No space left on device" in message
    assert str(cluster.path) in message
    filler.unlink()
    cluster.up(slots=1)
    position = cluster.run_dir.topology_state("x") / "numbers-0" / "position"
    position.parent.mkdir(parents=True)
    position.write_text("12")
    cluster.ok("submit", ENDLESS, "--name", "first")
    wait_for("acks", lambda: cluster.described("first").acked > 0)
    fill(filler)
    message = cluster.refused(1, "submit", ENDLESS, "--name", "x", "--fresh")
    # Whichever of the two finds no page left. If it is the store, Nimbus ends and its next life puts the state back.
    assert message.startswith((f"cannot store code {cluster.path}/code/", f"store {cluster.path}/nimbus.db: ")), message
    wait_for("the state, where it was", lambda: position.exists() and position.read_text() == "12")
    before = cluster.described("first").acked
    wait_for("more acks", lambda: cluster.described("first").acked > before)
    wait_for("Nimbus", lambda: serves(cluster))
    for name in ([], ["first"]):
        assert f"cannot write to {cluster.path}: No space left on device" in cluster.run("status", *name).stderr
    ends_of_it(cluster, filler, "kill", "first", "-w", "0")
    before = cluster.described("first").acked
    wait_for("more acks, without any of that", lambda: cluster.described("first").acked > before)
    ends_by_itself(cluster, filler)
    before = cluster.described("first").acked
    wait_for("more acks, of the next worker", lambda: cluster.described("first").acked > before)
    assert not cluster.json("submit", ENDLESS, "--name", "x", "--fresh")["takes_up_state"]
    assert not position.exists()
    assert [row["name"] for row in cluster.json("list")["topologies"]] == ["first", "x"]
    for name in ("first", "x"):
        cluster.ok("kill", name, "-w", "0")
    deaths_name_the_disk(cluster, filler)


def deaths_name_the_disk(cluster: Standing, filler: Path) -> None:
    """A worker whose code finds no room says so, although its log has none either."""
    cluster.ok("submit", f"{ENDLESS}:saving", "--name", "saving")
    wait_for("acks", lambda: cluster.described("saving").acked > 0)
    (worker,) = cluster.described("saving").workers
    fill(filler)
    wait_for("its death", lambda: not psutil.pid_exists(worker.pid))
    filler.unlink()
    wait_for("why it died", lambda: len(cluster.described("saving").deaths) > 0)
    first = cluster.described("saving").deaths[0].error
    assert "raised OSError: [Errno 28] No space left on device" in first, first
    before = cluster.described("saving").acked
    wait_for("more acks", lambda: cluster.described("saving").acked > before)


def a_run_says_so_meanwhile(run_dir: Path, filler: Path) -> None:
    line = [sys.executable, "-m", "squall", "run", ENDLESS, "--dir", run_dir, "--interval", "0.2"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        assert any("s: emitted" in line for line in run.stderr)
        fill(filler)
        assert any(f"s: cannot write to {run_dir}: No space left on device; emitted" in line for line in run.stderr)
        filler.unlink()
        run.kill()


def main() -> None:
    disk = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "squall-test", disk], check=True)
    cluster = Standing(disk / "c")
    filler = disk / "filler"
    try:
        a_run_says_so_meanwhile(disk / "r", filler)
        scenario(cluster, filler)
    finally:
        filler.unlink(missing_ok=True)
        if cluster.path.exists():
            cluster.run("down", "-w", "0")


if __name__ == "__main__":
    main()
