"""The forking parent: real forks, real deaths. What becomes of its workers when it dies: tests/chaos/who_dies.py."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
import zmq

from squall.scheduler.common import process
from squall.scheduler.common.messages import Assignment, SlotRef, TopologyRecord, WorkerBoot
from squall.scheduler.common.role import Role, RoleKind, role_of
from squall.scheduler.forking.parent import ChildExited, Forked, SpareEnded
from squall.scheduler.supervisor.forking_parent import ForkingParent
from tests.process.cli import ROOT
from tests.process.waiting import wait_for


def boot(log: Path, port: int = 6700) -> WorkerBoot:
    topology = TopologyRecord("words-1", "words", "ACTIVE", {}, [], "blob", [], 0.0)
    assignment = Assignment("words-1", 1, [SlotRef("node-1", port)], [[]])
    return WorkerBoot(str(log.parent), "node-1", port, 1, 0, topology, assignment, str(log))


def children_of(pid: int) -> set[int]:
    return {child.pid for child in psutil.Process(pid).children()}


class Parent:
    """A forking parent, and what it has told."""

    def __init__(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            # It is to find the functions of worker_entries.py.
            patch.setenv("PYTHONPATH", str(ROOT))
            self.client = ForkingParent(zmq.Poller(), "node-1", "", random.Random(1), 0.0, 7)
        self.forked: list[Forked] = []
        self.exited: dict[int, int] = {}

    def hear(self) -> None:
        for event in self.client.events(time.monotonic()):
            if isinstance(event, Forked):
                self.forked.append(event)
            elif isinstance(event, ChildExited):
                self.exited[event.pid] = event.status
            elif not isinstance(event, SpareEnded):
                pytest.fail(str(event))

    def fork(self, boot: WorkerBoot, name: str) -> Forked:
        """Ask for a worker that runs a function of worker_entries.py, and wait for it."""
        self.client.entry = f"tests.process.worker_entries:{name}"
        self.client.request_fork(boot)
        return wait_for("the worker", lambda: self.hear() or (self.forked and self.forked.pop()))

    def warm(self, boot: WorkerBoot, loader: str = "tests.process.worker_entries:loader") -> int:
        """Have it make a spare; the spare's pid once it is loaded."""
        self.client.loader = loader
        self.client.keep_spares(boot.run_dir, [boot.topology])
        role = Role(RoleKind.SPARE, boot.node, boot.topology.name)
        return wait_for("the spare", lambda: next(
            (pid for pid in children_of(self.client.pid) if role_of(psutil.Process(pid)) == role), 0
        ))

    def end_of(self, child: Forked) -> str:
        """Wait for the exit event of a child; how it ended."""
        wait_for(f"the exit of {child.pid}", lambda: self.hear() or child.pid in self.exited)
        return process.describe_status(self.exited[child.pid])


@pytest.fixture(scope="module")
def parent() -> Iterator[Parent]:
    made = Parent()
    yield made
    made.client.close()


def test_one_of_several_children_is_killed(parent: Parent, tmp_path: Path) -> None:
    children = [parent.fork(boot(tmp_path / "log", 6700 + n), "sleeper") for n in range(5)]
    assert [child.port for child in children] == [6700 + n for n in range(5)]
    assert children_of(parent.client.pid) == {child.pid for child in children}
    victim = children.pop(2)
    assert process.send_signal_proven(victim.pid, victim.started_ticks, signal.SIGKILL)
    assert parent.end_of(victim) == "killed by SIGKILL"
    assert not process.send_signal_proven(victim.pid, victim.started_ticks, signal.SIGKILL)
    assert children_of(parent.client.pid) == {child.pid for child in children}
    for child in children:
        process.send_signal_proven(child.pid, child.started_ticks, signal.SIGKILL)
    wait_for("the forking parent to reap all", lambda: not children_of(parent.client.pid))
    assert len(os.listdir(f"/proc/{parent.client.pid}/fd")) <= 3 + 3


@pytest.mark.parametrize(
    ("name", "text", "log"),
    [
        ("code_5", "exited with code 5", "printed\ncomplained"),
        ("raiser", "exited with code 1", "RuntimeError: boom in the entry point"),
        ("sys_exiter", "exited with code 1", "no way"),
        ("segfaulter", "killed by SIGSEGV", "Fatal Python error: Segmentation fault"),
    ],
)
def test_how_a_child_ends(parent: Parent, tmp_path: Path, name: str, text: str, log: str) -> None:
    assert parent.end_of(parent.fork(boot(tmp_path / "log"), name)) == text
    assert log in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("loader", "printed", "loaded"),
    [
        ("", [], ""),
        ("tests.process.worker_entries:loader", ["loaded words in time"], "code"),
        ("operator:is_", [], False),
    ],
)
def test_a_child_looks_like_a_fresh_process(
    parent: Parent, tmp_path: Path, loader: str, printed: list[str], loaded: object
) -> None:
    """Also one that was a spare."""
    log = tmp_path / "log"
    log.write_text("earlier incarnation\n")
    spare = parent.warm(boot(log), loader) if loader else 0
    child = parent.fork(boot(log, port=6711), "describer")
    assert parent.end_of(child) == "exited with code 0"
    *before, facts_line = log.read_text().splitlines()
    assert before == ["earlier incarnation", *printed]
    assert child.pid == spare or not loader
    assert json.loads(facts_line) == {
        "fds": {"0": "/dev/null", "1": str(log), "2": str(log)},
        "lowest_free_fd": 3,
        "leads": True,
        "mask": 0,
        "handlers": [],
        "port": 6711,
        "imported_here": True,
        "preloaded": True,
        "loaded": loaded,
        "time_left": 0.0,
    }


def test_a_log_that_cannot_be_opened_does_not_keep_a_worker_from_running(parent: Parent, tmp_path: Path) -> None:
    child = parent.fork(boot(tmp_path / "no such directory" / "log"), "code_5")
    assert parent.end_of(child) == "exited with code 5"


def test_the_group_is_killed_after_its_leader(parent: Parent, tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = parent.fork(boot(log), "grandparent")
    grandchild = int(wait_for("the grandchild", lambda: log.exists() and log.read_text().strip()))
    pidfd = process.open_proven(child.pid, child.started_ticks)
    process.send_signal(pidfd, signal.SIGKILL)
    assert select.select([pidfd], [], [], 100)[0]
    parent.end_of(child)
    running = psutil.Process(grandchild)
    assert running.is_running()
    assert process.send_signal_to_group(child.pid, signal.SIGKILL)
    wait_for("the end of the grandchild", lambda: not running.is_running() or running.status() == psutil.STATUS_ZOMBIE)
    os.close(pidfd)


def test_a_boot_larger_than_the_sockets_buffer_arrives(parent: Parent, tmp_path: Path) -> None:
    """A spare cannot take it, and is killed."""
    small = boot(tmp_path / "log")
    spare = parent.warm(small)
    big = msgspec.structs.replace(small.topology, conf={f"key {n}": "x" * 1000 for n in range(2000)})
    child = parent.fork(msgspec.structs.replace(small, topology=big), "code_5")
    assert parent.end_of(child) == "exited with code 5"
    assert child.pid != spare
    wait_for("the end of the spare", lambda: not children_of(parent.client.pid))


def test_what_topologies_import_is_there_before_a_worker_is_forked() -> None:
    program = (
        "import sys; from squall.scheduler.forking.parent import preload; preload(); before = set(sys.modules)\n"
        "import squall; [getattr(squall, name) for name in squall.__all__]\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == ""


def test_how_a_process_ended_is_known_before_its_parent_reaps_it() -> None:
    if (pid := os.fork()) == 0:
        os._exit(7)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert process.status_of_zombie(pid) == os.waitpid(pid, 0)[1] == 7 << 8
