"""Run by `test_full_disk` where it may mount: a cluster on a file system of its own, filled to the last byte."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

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


def names_the_disk(cluster: Standing, *arguments: str) -> None:
    """Whether Nimbus says it with its last words or has ended of it before, the command does."""
    with cluster.keeper_held():
        done = cluster.run(*arguments)
    message = done.stderr
    assert done.returncode == 1
    assert "No space left on device" in message, (arguments, message)
    assert str(cluster.path) in message, message


def scenario(cluster: Standing, filler: Path) -> None:
    fill(filler)
    message = cluster.refused(1, "up", "--detach")
    assert "No space left on device" in message
    assert str(cluster.path) in message
    filler.unlink()
    cluster.up(slots=1)
    position = cluster.run_dir.state_dir("x", "numbers", 0) / "position"
    position.parent.mkdir(parents=True)
    position.write_text("12")
    cluster.ok("submit", ENDLESS, "--name", "first")
    wait_for("acks", lambda: cluster.described("first")["acked"] > 0)
    fill(filler)
    message = cluster.refused(1, "submit", ENDLESS, "--name", "x", "--fresh")
    # Whichever of the two finds no page left. If it is the store, Nimbus ends and its next life puts the state back.
    assert message.startswith((f"cannot store code {cluster.path}/code/", f"store {cluster.path}/nimbus.db: ")), message
    wait_for("the state, where it was", lambda: position.exists() and position.read_text() == "12")
    before = cluster.described("first")["acked"]
    wait_for("more acks", lambda: cluster.described("first")["acked"] > before)
    assert [row["name"] for row in cluster.json("list")] == ["first"]
    fill(filler)
    names_the_disk(cluster, "rebalance", "first", "-n", "1", "-w", "0")
    names_the_disk(cluster, "deactivate", "first")
    names_the_disk(cluster, "kill", "first", "-w", "0")
    with cluster.keeper_held():
        assert "No space left on device" in cluster.run("nimbus").stderr
    assert cluster.described("first")["acked"] > before
    filler.unlink()
    assert not cluster.json("submit", ENDLESS, "--name", "x", "--fresh")["takes_up_state"]
    assert not position.exists()
    assert [row["name"] for row in cluster.json("list")] == ["first", "x"]


def main() -> None:
    disk = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "squall-test", disk], check=True)
    cluster = Standing(disk / "c")
    filler = disk / "filler"
    try:
        scenario(cluster, filler)
    finally:
        filler.unlink(missing_ok=True)
        if cluster.path.exists():
            cluster.run("down", "-w", "0")


if __name__ == "__main__":
    main()
