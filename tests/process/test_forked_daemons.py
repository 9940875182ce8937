"""Daemons that the keeper forks: each as if it had been executed, and holding nothing of the others."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

from squall.scheduler.common.role import Role, RoleKind, processes_of, role_of
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for


def command_line(process: psutil.Process) -> list[str]:
    """Without the room that is left."""
    return [argument for argument in process.cmdline() if argument]


def open_files(process: psutil.Process) -> dict[int, str]:
    found = {}
    for fd in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found[int(fd.name)] = os.readlink(fd)
    return found


def status_field(process: psutil.Process, name: str) -> str:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:"))


def replaced(cluster: Standing, node: str) -> psutil.Process:
    """The supervisor that the keeper started in place of one that was killed; it is registered."""
    killed = cluster.supervisor(node)
    killed.kill()
    wait_for("its end", lambda: not killed.is_running())

    def begun() -> bool:
        return cluster.run_dir.daemon_log(f"supervisor-{node}").read_text().count("registered with Nimbus") >= 2

    wait_for("the next one", begun)
    return cluster.supervisor(node)


def test_a_forked_daemon_looks_executed_holds_nothing_of_others_and_may_end(cluster: Standing) -> None:
    cluster.up(nodes=2, slots=1)
    forked = replaced(cluster, "node-1")
    keeper = cluster.keeper()
    assert forked.ppid() == keeper.pid
    assert command_line(forked) == ["squall: supervisor node-1"]
    assert (os.getsid(forked.pid), os.getpgid(forked.pid)) == (forked.pid, forked.pid)
    assert int(status_field(forked, "SigBlk"), 16) == 0

    files = open_files(forked)
    log = str(cluster.run_dir.daemon_log("supervisor-node-1"))
    assert [files[fd] for fd in (0, 1, 2)] == ["/dev/null", log, log]
    of_others = {*open_files(keeper).values(), *open_files(cluster.supervisor("node-2")).values()}
    shared = {file for file in files.values() if file.startswith(("/", "pipe", "socket"))} & of_others
    assert shared == {"/dev/null"}

    def asleep() -> bool:
        """It looks after them once a second, and holds other files then, or none."""
        found = {file for fd, file in open_files(keeper).items() if fd > 2}
        return found == {"anon_inode:[pidfd]", str(cluster.run_dir.keeper_lock)}

    wait_for("the keeper to hold nothing but its children and its lock", asleep)
    assert keeper.num_threads() == 1

    # Told to end, it is not started again.
    forked.terminate()
    wait_for("its end", lambda: not forked.is_running())
    cluster.supervisor("node-2").kill()
    keeper_log = cluster.run_dir.daemon_log("keeper")
    # The keeper has looked at everybody's end before it says so.
    wait_for("node-2 to be replaced", lambda: "supervisor-node-2 was killed" in keeper_log.read_text())
    assert not any(role_of(process) == Role(RoleKind.SUPERVISOR, "node-1") for process in processes_of(cluster.run_dir))
