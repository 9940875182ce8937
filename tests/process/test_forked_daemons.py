"""Daemons that the keeper forks: each as if it had been executed, and holding nothing of the others."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from squall.scheduler.common.mark import processes_of, role_of
from squall.scheduler.common.process_title import Kind, Role
from tests.process.cli import ROOT
from tests.process.standing_tools import ENDLESS, Standing, directory
from tests.process.waiting import wait_for


@pytest.fixture
def cluster() -> Iterator[Standing]:
    with directory() as made:
        yield made


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
        return cluster.run_dir.daemon_log(f"supervisor-{node}").read_text().count("registered with Nimbus") == 2

    wait_for("the next one", begun)
    return cluster.supervisor(node)


def test_a_forked_daemon_looks_executed_and_holds_nothing_of_others(cluster: Standing) -> None:
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


def forking_parent(supervisor: psutil.Process) -> psutil.Process | None:
    """It may have no name of its own yet."""
    named = (child for child in supervisor.children() if role_of(child) == Role(Kind.FORKING_PARENT, "node-1"))
    return next(named, None)


def test_the_first_forking_parent_is_forked_and_the_next_one_executed(cluster: Standing) -> None:
    cluster.up(nodes=1, slots=1)
    supervisor = cluster.supervisor("node-1")
    first = wait_for("the forking parent", lambda: forking_parent(supervisor))
    assert first.num_threads() == 1
    of_supervisor = set(open_files(supervisor).values())
    log = str(cluster.run_dir.daemon_log("supervisor-node-1"))
    assert {*open_files(first).values()} & of_supervisor <= {"/dev/null", log, "anon_inode:[pidfd]"}
    cluster.ok("submit", ENDLESS, "--name", "one")
    wait_for("acks", lambda: cluster.described("one")["acked"] > 0)
    first.kill()
    wait_for("the next one", lambda: (found := forking_parent(supervisor)) and found.pid != first.pid)
    os.kill(cluster.described("one")["workers"][0]["pid"], signal.SIGKILL)
    wait_for("a worker of its own", lambda: cluster.described("one")["workers"][0]["incarnation"] == 2)
    acked = cluster.described("one")["acked"]
    wait_for("more acks", lambda: cluster.described("one")["acked"] > acked)


def test_a_forked_daemon_that_was_told_to_end_is_not_started_again(cluster: Standing) -> None:
    cluster.up(nodes=2, slots=1)
    forked = replaced(cluster, "node-1")
    forked.terminate()
    wait_for("its end", lambda: not forked.is_running())
    cluster.supervisor("node-2").kill()
    keeper_log = cluster.run_dir.daemon_log("keeper")
    # The keeper has looked at everybody's end before it says so.
    wait_for("node-2 to be replaced", lambda: "supervisor-node-2 was killed" in keeper_log.read_text())
    assert not any(role_of(process) == Role(Kind.SUPERVISOR, "node-1") for process in processes_of(cluster.run_dir))


SHOW = """
import os, psutil, sys
from pathlib import Path
from squall.scheduler.common.mark import role_of
from squall.scheduler.common.process_title import Kind, Role, show_role
for topology in ("zwölf words", "x" * 100_000):
    show_role(Role(Kind.WORKER, "node-1:6700", topology))
    print(Path("/proc/self/cmdline").read_text().rstrip("\\0")[:44], Path("/proc/self/comm").read_text().strip())
    print(*role_of(psutil.Process())[:2], len(Path("/proc/self/cmdline").read_bytes()) < 10_000)
print(Path("/proc/self/environ").read_text().count("MARK=1"))
"""


def test_a_role_is_shown_and_one_that_is_too_long_is_cut() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOW, "room" * 20], capture_output=True, text=True, check=True, cwd=ROOT,
        env={**os.environ, "MARK": "1"},
    )
    assert done.stdout.splitlines() == [
        "squall: worker node-1:6700 zwölf words squall: worker", "worker node-1:6700 True",
        f"squall: worker node-1:6700 {'x' * 17} squall: worker", "worker node-1:6700 True", "1",
    ]


def test_ps_shows_every_process_by_its_role(cluster: Standing) -> None:
    cluster.up(nodes=1, slots=1)
    cluster.ok("submit", ENDLESS, "--name", "two words")
    wait_for("acks", lambda: cluster.described("two words")["acked"] > 0)
    # Names are cut by the kernel, command lines are not.
    ps = subprocess.run(["ps", "-o", "comm=,args=", "-p", ",".join(str(each.pid) for each in processes_of(
        cluster.run_dir))], capture_output=True, text=True, check=True)
    roles = ["forking parent node-1", "keeper", "nimbus", "supervisor node-1", "worker node-1:6700 two words"]
    shown = sorted(line.rstrip() for line in ps.stdout.splitlines())
    assert shown == sorted(f"{f'squall: {role}'[:15]:15} squall: {role}" for role in roles)
