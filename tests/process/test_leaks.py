"""The leak checks see what they are for: each kind of leak is planted, named in the evidence, and gone when cleaned."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import zmq

from tests.leaks import RunMarker, Snapshot, find_leaks
from tests.process.waiting import wait_for

NO_TIME_SECS = 0.0


@pytest.fixture
def marker() -> Iterator[RunMarker]:
    """A mark of this test's own beside the one of the test run."""
    marker = RunMarker()
    yield marker
    marker.close()


def test_what_is_left_in_this_process_is_named_until_it_is_gone(tmp_path: Path) -> None:
    before = Snapshot()
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="left-running", daemon=True)
    thread.start()
    wanted = [
        f"{tmp_path}/left-open", f"{tmp_path}/socket", "thread 'left-running' (Thread, daemon=True)", "in wait",
        "a ZeroMQ context that was not terminated",
    ]  # fmt: skip
    with (
        (tmp_path / "left-open").open("w"), socket.socket(socket.AF_UNIX) as bound,
        zmq.Context() as context, context.socket(zmq.PUSH),
    ):
        bound.bind(str(tmp_path / "socket"))
        # A native thread names itself a moment after it began.
        wait_for("all of it", lambda: all(text in str(find_leaks(before, NO_TIME_SECS)) for text in wanted))
    threading.Timer(0.1, done.set).start()
    assert not find_leaks(before, deadline_secs=30)


def test_a_thread_that_has_not_named_itself_yet_is_not_new_later() -> None:
    def names() -> set[str]:
        return {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}

    for _ in range(30):
        with zmq.Context() as context, context.socket(zmq.PUSH):
            before = Snapshot()
            wait_for("its name", lambda: "ZMQbg/Reaper" in names())
            assert not find_leaks(before, NO_TIME_SECS)


def pausing() -> int:
    if not (pid := os.fork()):
        signal.pause()
    return pid


def zombie() -> int:
    pid = pausing()
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


def orphan_of_a_fork() -> int:
    """Its parent, our child, is gone."""
    ours, theirs = os.pipe()
    if not (child := os.fork()):
        if not os.fork():
            os.write(theirs, b"%d" % os.getpid())
            signal.pause()
        os._exit(0)
    os.waitpid(child, 0)
    pid = int(os.read(ours, 20))
    os.close(ours)
    os.close(theirs)
    return pid


def executed_orphan() -> int:
    start = "import subprocess, sys; print(subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL).pid)"
    return int(subprocess.check_output([sys.executable, "-c", start]))


@pytest.mark.parametrize("leave", [pausing, zombie, orphan_of_a_fork, executed_orphan])
def test_a_process_left_behind_is_named_and_ended(marker: RunMarker, leave: Callable[[], int]) -> None:
    before = Snapshot(marker)
    pid = leave()
    found = find_leaks(before, NO_TIME_SECS)
    assert [process.pid for process in found.processes] == [pid]
    assert f"process {pid} (parent " in str(found)
    found.end_processes()
    assert not find_leaks(before)


def test_what_a_process_of_before_starts_is_its_own_affair(marker: RunMarker) -> None:
    line = ["sh", "-c", "read go; sleep 600 & echo $!; read end; kill $!; wait"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        before = Snapshot(marker)
        print("go", file=owner.stdin, flush=True)
        assert psutil.pid_exists(int(owner.stdout.readline()))
        assert not find_leaks(before, NO_TIME_SECS)


def test_a_run_directory_left_behind_is_named(marker: RunMarker, tmp_path: Path) -> None:
    before = Snapshot(marker, tmp_path)
    assert str(find_leaks(before, NO_TIME_SECS)) == ""
    (tmp_path / "a1b2").mkdir()
    assert str(find_leaks(before, NO_TIME_SECS)) == f"left behind: {tmp_path / 'a1b2'}"
