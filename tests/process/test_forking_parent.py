"""The forking parent: real forks, real deaths."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from squall.engine.errors import ClusterError
from squall.scheduler.common import process
from squall.scheduler.common.messages import WorkerBoot
from squall.scheduler.forking.client import ForkedChild, ForkingParentClient, ForkingParentEnded
from squall.scheduler.forking.wire import ChildExited
from tests.process.scheduler_tools import boot, children_of, entry, eventually, importable_tests, is_alive

SEED = 7


@pytest.fixture
def parent() -> Iterator[ForkingParentClient]:
    with importable_tests():
        client = ForkingParentClient.start(SEED, "node-1")
    yield client
    client.close()


@pytest.fixture
def subreaper() -> Iterator[None]:
    process.become_subreaper()
    yield
    ctypes.CDLL(None).prctl(process.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def wait_readable(fd: int, what: str) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(100_000), f"waited 100 s in vain for {what}"


EXITED: dict[int, int] = {}
"""Pid -> status of each child whose exit was seen."""


def seen(client: ForkingParentClient) -> list[ForkedChild]:
    """The children that its events name."""
    events = client.events()
    EXITED.update((event.pid, event.status) for event in events if isinstance(event, ChildExited))
    return [event for event in events if isinstance(event, ForkedChild)]


def forked(client: ForkingParentClient, boot: WorkerBoot, entry: str) -> ForkedChild:
    """Ask for a worker and wait for it."""
    client.request_fork(boot, entry)
    return eventually("the worker", lambda: seen(client))[0]


def exit_of(client: ForkingParentClient, pid: int) -> int:
    """Wait for the exit event of a child; its status."""
    eventually(f"the exit of {pid}", lambda: seen(client) or pid in EXITED)
    return EXITED.pop(pid)


def test_twenty_children_one_killed(parent: ForkingParentClient, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    children = [forked(parent, boot(tmp_path / "log", 6700 + n), entry("sleeper")) for n in range(20)]
    assert len({child.pid for child in children}) == 20
    assert [child.port for child in children] == [6700 + n for n in range(20)]
    assert children_of(parent.pid).keys() == {child.pid for child in children}

    victim = children[7]
    process.send_signal(victim.pidfd, signal.SIGKILL)
    wait_readable(victim.pidfd, "the pidfd of a killed child")
    assert process.describe_status(exit_of(parent, victim.pid)) == "killed by SIGKILL"
    assert not process.send_signal(victim.pidfd, signal.SIGKILL)
    alive = {child.pid for child in children if child is not victim}
    assert children_of(parent.pid).keys() == alive

    for child in children:
        process.send_signal(child.pidfd, signal.SIGKILL)
    eventually("the forking parent to reap all", lambda: not children_of(parent.pid))
    for child in children:
        os.close(child.pidfd)
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(os.listdir(f"/proc/{parent.pid}/fd")) <= 3 + 3


@pytest.mark.parametrize(
    ("name", "text", "log"),
    [
        ("code_5", "exited with code 5", "printed\ncomplained"),
        ("raiser", "exited with code 1", "RuntimeError: boom in the entry point"),
        ("sys_exiter", "exited with code 1", "no way"),
        ("segfaulter", "killed by SIGSEGV", "Fatal Python error: Segmentation fault"),
        ("missing", "exited with code 1", "has no attribute 'missing'"),
    ],
)
def test_how_a_child_ends(parent: ForkingParentClient, tmp_path: Path, name: str, text: str, log: str) -> None:
    child = forked(parent, boot(tmp_path / "log"), entry(name))
    assert process.describe_status(exit_of(parent, child.pid)) == text
    assert log in (tmp_path / "log").read_text()
    os.close(child.pidfd)


def test_a_child_looks_like_a_fresh_process(parent: ForkingParentClient, tmp_path: Path) -> None:
    earlier = forked(parent, boot(tmp_path / "earlier log"), entry("code_5"))
    os.close(earlier.pidfd)
    exit_of(parent, earlier.pid)
    log = tmp_path / "log"
    log.write_text("earlier incarnation\n")
    child = forked(parent, boot(log, port=6711), entry("describer"))
    assert exit_of(parent, child.pid) == 0
    os.close(child.pidfd)
    first, facts_line = log.read_text().splitlines()
    assert first == "earlier incarnation"
    assert json.loads(facts_line) == {
        "fds": {"0": "/dev/null", "1": str(log), "2": str(log)},
        "lowest_free_fd": 3,
        "leads": True,
        "mask": 0,
        "handlers": [],
        "port": 6711,
        "imported_here": True,
        "preloaded": True,
    }


def test_a_log_that_cannot_be_opened_does_not_keep_a_worker_from_running(
    parent: ForkingParentClient, tmp_path: Path
) -> None:
    child = forked(parent, boot(tmp_path / "no such directory" / "log"), entry("code_5"))
    assert process.describe_status(exit_of(parent, child.pid)) == "exited with code 5"
    os.close(child.pidfd)


def test_the_group_is_killed_with_its_leader_or_after_it(parent: ForkingParentClient, tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = forked(parent, boot(log), entry("grandparent"))
    grandchild = int(eventually("the grandchild", lambda: log.exists() and log.read_text().strip()))
    process.send_signal(child.pidfd, signal.SIGKILL)
    wait_readable(child.pidfd, "the end of the leader")
    exit_of(parent, child.pid)
    assert is_alive(grandchild)
    assert process.send_signal_to_group(child.pidfd, child.pid, signal.SIGKILL)
    eventually("the end of the grandchild", lambda: not is_alive(grandchild))
    os.close(child.pidfd)


@pytest.mark.usefixtures("subreaper")
def test_workers_outlive_their_forking_parent_and_are_reaped_by_the_subreaper(tmp_path: Path) -> None:
    with importable_tests():
        first, second = ForkingParentClient.start(SEED, "node-1"), ForkingParentClient.start(SEED, "node-1")
    children = [forked(first, boot(tmp_path / "log", 6700 + n), entry("sleeper")) for n in range(3)]
    first.kill()
    assert eventually("the end of the forking parent", first.events) == [
        ForkingParentEnded("the other end of the forking parent's socket has gone")
    ]
    assert first.events() == []
    with pytest.raises(ClusterError, match="cannot ask the forking parent"):
        first.request_fork(boot(tmp_path / "log"), entry("sleeper"))
    first.close()
    assert all(is_alive(child.pid) for child in children)
    assert children_of(os.getpid()).keys() == {child.pid for child in children} | {second.pid}

    replacement = forked(second, boot(tmp_path / "log"), entry("sleeper"))
    with pytest.raises(ChildProcessError):
        process.reap(replacement.pidfd)
    for child in [*children, replacement]:
        process.send_signal(child.pidfd, signal.SIGKILL)
        wait_readable(child.pidfd, "the pidfd of a killed child")
    assert process.peek_dead_child() in {child.pid for child in children}
    for child in children:
        assert process.reap(child.pidfd) == signal.SIGKILL
    assert exit_of(second, replacement.pid) == signal.SIGKILL
    for child in [*children, replacement]:
        os.close(child.pidfd)
    second.close()
    assert children_of(os.getpid()) == {}


@pytest.mark.usefixtures("subreaper")
def test_the_forking_parent_ends_with_its_supervisor_and_its_workers_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It ends by itself, or the test does not.
    monkeypatch.setattr("squall.scheduler.forking.client.CLOSE_TIMEOUT_SECS", 3600.0)
    with importable_tests():
        client = ForkingParentClient.start(SEED, "node-1")
    child = forked(client, boot(tmp_path / "log"), entry("sleeper"))
    client.close()
    assert not is_alive(client.pid)
    assert is_alive(child.pid)
    process.send_signal(child.pidfd, signal.SIGKILL)
    wait_readable(child.pidfd, "the pidfd of a killed child")
    assert process.reap(child.pidfd) == signal.SIGKILL
    os.close(child.pidfd)


def test_a_boot_larger_than_the_sockets_buffer_arrives(parent: ForkingParentClient, tmp_path: Path) -> None:
    small = boot(tmp_path / "log")
    big = msgspec.structs.replace(small.topology, conf={f"key {n}": "x" * 1000 for n in range(2000)})
    child = forked(parent, msgspec.structs.replace(small, topology=big), entry("code_5"))
    assert process.describe_status(exit_of(parent, child.pid)) == "exited with code 5"
    os.close(child.pidfd)


def test_what_topologies_import_is_there_before_a_worker_is_forked() -> None:
    program = (
        "import sys; from squall.scheduler.forking.parent import preload; preload(); before = set(sys.modules)\n"
        "import squall; [getattr(squall, name) for name in squall.__all__]\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == ""
