"""Processes: names and statuses for people, proof of identity, forks that report their end, stacks."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import zmq

from squall.engine.errors import ClusterError
from squall.ipc.board import DEAD, READY, STARTING, STOPPED, SlotCell
from squall.ipc.control import NotStarted
from squall.ipc.rundir import RunDir
from squall.scheduler.common import process
from squall.scheduler.common.role import Role, RoleKind, role_in, signal_marked
from squall.scheduler.common.standstill import log_size, python_stack, stack_in
from squall.scheduler.nimbus.injection import living
from squall.scheduler.supervisor.dispatcher import WorkerWatch
from tests.unit.waiting_child import waiting_child


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (1 << 8, "exited with code 1"),
        (signal.SIGSEGV | process.CORE_DUMPED, "killed by SIGSEGV"),
        (40, "killed by signal 40"),
    ],
)
def test_statuses_are_described(status: int, text: str) -> None:
    assert process.describe_status(status) == text


@pytest.mark.parametrize(
    ("command", "role"),
    [
        (["squall: nimbus", "", "", ""], Role(RoleKind.NIMBUS)),
        # psutil splits at blanks what fills its room.
        (["squall:", "forking", "parent", "node-1"], Role(RoleKind.FORKING_PARENT, "node-1")),
        (["squall: worker node-1:6700 keeper", ""], Role(RoleKind.WORKER, "node-1:6700", "keeper")),
        (
            ["python", "-P", "-m", "squall.scheduler.supervisor.main", "--dir", "/x", "--node", "a", "--ports", "1"],
            Role(RoleKind.SUPERVISOR, "a"),
        ),
        (["squall: nimbuses"], None),
        (["python", "/usr/bin/squall", "supervisor", "--node", "a"], None),
        ([], None),
    ],
)
def test_roles(command: list[str], role: Role | None) -> None:
    assert role_in(command) == role


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with waiting_child() as made:
        yield made


@pytest.fixture
def group_signals() -> Iterator[list[int]]:
    """What arrives here, if somebody signals our group, or everybody."""
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda signum, frame: seen.append(signum))
    yield seen
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("pid", [0, -1, -os.getpgrp()])
def test_numbers_that_mean_groups_name_nobody(pid: int, group_signals: list[int]) -> None:
    with pytest.raises(ClusterError, match=f"pid {pid} names no process"):
        process.open_proven(pid, process.start_time_ticks(os.getpid()))
    assert not process.send_signal_proven(pid, 1, signal.SIGUSR1)
    with pytest.raises(ClusterError, match="no process group of ours"):
        process.send_signal_to_group(pid, signal.SIGUSR1)
    assert not process.lives(pid, 1)
    assert group_signals == []


def test_a_pid_with_another_start_time_is_another_process(group_signals: list[int]) -> None:
    """As after the number came round again: the process that has it now is not hit."""
    started = process.start_time_ticks(os.getpid())
    assert not process.send_signal_proven(os.getpid(), started - 1, signal.SIGUSR1)
    assert not process.lives(os.getpid(), started - 1)
    assert group_signals == []
    assert process.send_signal_proven(os.getpid(), started, signal.SIGUSR1)
    assert group_signals == [signal.SIGUSR1]


def test_a_dead_process_that_nobody_has_reaped_has_ended(child: subprocess.Popen[bytes]) -> None:
    started = process.start_time_ticks(child.pid)
    assert process.lives(child.pid, started)
    assert process.send_signal_proven(child.pid, started, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ClusterError, match=f"process {child.pid} has ended"):
        process.open_proven(child.pid, started)
    assert not process.lives(child.pid, started)


@pytest.mark.parametrize(("cell", "kind"), [
    (SlotCell(1, DEAD, 0), ClusterError), (SlotCell(1, READY, os.getpid(), 1), ClusterError),
    (SlotCell(1, STOPPED, os.getpid(), process.start_time_ticks(os.getpid())), ClusterError),
    # These may be asked for again.
    (SlotCell(0, 0, 0), NotStarted), (SlotCell(1, STARTING, 0), NotStarted), (SlotCell(2, STOPPED, 0), NotStarted),
])
def test_a_fault_for_a_worker_that_is_not_there_is_an_error(cell: SlotCell, kind: type[ClusterError]) -> None:
    with pytest.raises(ClusterError, match="worker node-1:6700 ") as refused:
        living("node-1:6700", cell)
    assert type(refused.value) is kind


def test_the_start_time_of_a_worker_is_kept_while_it_is_watched(child: subprocess.Popen[bytes]) -> None:
    watch = WorkerWatch(zmq.Poller())
    assert watch.started_ticks(child.pid) == 0
    started = process.start_time_ticks(child.pid)
    watch.add(child.pid, started)
    assert watch.started_ticks(child.pid) == started
    child.kill()
    child.wait()
    # Its death is written on the board before it is forgotten, with the words that it had in life.
    assert watch.started_ticks(child.pid) == started
    watch.close()
    assert watch.started_ticks(child.pid) == 0


def test_a_process_without_the_mark_is_not_signalled(
    group_signals: list[int], tmp_path: Path, child: subprocess.Popen[bytes]
) -> None:
    """It may have the number of one that was found, and has ended since."""
    here, former = psutil.Process(os.getpid()), psutil.Process(child.pid)
    child.kill()
    child.wait()
    for found in (here, former):
        signal_marked(found, RunDir(tmp_path / "run"), signal.SIGUSR1)
    assert group_signals == []


@pytest.mark.parametrize(
    "said", [b"", b"-1\n", b"1 2", b"\xff\xfe", "²".encode(), b"+1", b"1_0"]
)
def test_a_lock_file_with_a_hostile_pid_names_nobody(said: bytes, tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path / "run")
    with run_dir.lock():
        run_dir.lock_file.write_bytes(said)
        assert run_dir.lock_holder() == "unknown"


CRASH = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f5c (most recent call first):
  File "/x/user.py", line 12 in execute
  File "/x/engine/core/executor.py", line 160 in _process_basic

Extension modules: zmq.backend.cython._zmq (total: 1)
"""
HUNG = """\
Thread 0x00007f01 (most recent call first):
  File "/x/waiting.py", line 3 in wait
user code printed this
Current thread 0x00007f00 (most recent call first):
  File "/x/user.py", line 30 in execute
  File "/x/worker.py", line 150 in run
"""


def test_a_crash_begins_with_its_name() -> None:
    stack = stack_in("some output\n" + CRASH + "output of the next\n")
    assert stack.splitlines()[0] == "Fatal Python error: Segmentation fault"
    assert stack.splitlines()[-1] == '  File "/x/engine/core/executor.py", line 160 in _process_basic'


def test_a_hung_worker_is_where_its_main_thread_is() -> None:
    lines = stack_in("before\n" + HUNG).splitlines()
    assert lines[0] == 'hung at File "/x/user.py", line 30 in execute'
    assert len(lines) == 1 + 5
    assert "printed" not in "".join(lines)


def test_what_was_there_before_is_another_lifes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert (log_size(str(log)), python_stack(str(log), 0)) == (0, "")
    log.write_text(CRASH)
    since = log_size(str(log))
    no_stack = "Traceback (most recent call last):\n  File \"x\", line 1\nValueError: File\n"
    for more, stack in ((no_stack, ""), (HUNG, "hung at")):
        with log.open("a") as file:
            file.write(more)
        assert python_stack(str(log), since)[:7] == stack
