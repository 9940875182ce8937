"""The leak checks see what they are for: each kind of leak is planted, named in the evidence, and gone when cleaned."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
import zmq

from tests.leaks import RunMarker, Snapshot, find_leaks
from tests.process.waiting import wait_for

SLEEPER = (sys.executable, "-c", "import signal; signal.pause()")
NO_TIME_SECS = 0.0


@pytest.fixture
def marker() -> Iterator[RunMarker]:
    """A mark of this test's own beside the one of the test run."""
    marker = RunMarker()
    yield marker
    marker.close()


def test_nothing_left_is_no_leak(marker: RunMarker, tmp_path: Path) -> None:
    before = Snapshot.take(marker, tmp_path)
    with open(os.devnull), socket.socket():
        subprocess.run([sys.executable, "-c", ""], check=True)
    assert str(find_leaks(before)) == ""


def test_what_is_left_in_this_process_is_named(tmp_path: Path) -> None:
    before = Snapshot.take()
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
    done.set()
    thread.join()
    assert not find_leaks(before)


def test_waits_for_what_is_on_its_way_out() -> None:
    before = Snapshot.take()
    timer = threading.Timer(0.1, lambda: None)
    timer.start()
    assert not find_leaks(before, deadline_secs=30)


def test_child_left_running_is_named_and_ended(marker: RunMarker) -> None:
    before = Snapshot.take(marker)
    child = subprocess.Popen(SLEEPER)
    found = find_leaks(before, NO_TIME_SECS)
    assert f"process {child.pid} (parent {os.getpid()}" in str(found)
    found.end_processes()
    assert not psutil.pid_exists(child.pid)
    child.wait()  # reaped above: only tells subprocess
    assert not find_leaks(before)


def test_zombie_is_named_and_reaped(marker: RunMarker) -> None:
    before = Snapshot.take(marker)
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    found = find_leaks(before, NO_TIME_SECS)
    assert f"process {child.pid} (parent {os.getpid()}, zombie" in str(found)
    found.end_processes()
    child.wait()
    assert not find_leaks(before)


@pytest.mark.parametrize("after_exec", [True, False], ids=["after exec", "forked only"])
def test_orphan_is_known_by_its_mark(marker: RunMarker, after_exec: bool) -> None:
    before = Snapshot.take(marker)
    orphan = start_orphan(os.environ if after_exec else None)
    found = find_leaks(before, NO_TIME_SECS)
    assert [process.pid for process in found.processes] == [orphan]
    found.end_processes()
    assert not find_leaks(before)


def start_orphan(environment: Mapping[str, str] | None) -> int:
    """A process whose parent, our child, is gone; without an environment it is forked only, and no new program."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.fork() == 0:
                os.setsid()
                if environment is not None:
                    os.set_inheritable(theirs, True)
                    program = f"import os, signal; os.write({theirs}, b'%d' % os.getpid())"
                    os.execve(sys.executable, (sys.executable, "-c", f"{program}; signal.pause()"), dict(environment))
                os.write(theirs, b"%d" % os.getpid())
                signal.pause()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    orphan = int(os.read(ours, 20))
    os.close(ours)
    os.close(theirs)
    return orphan


def test_what_a_process_of_before_starts_is_its_own_affair(marker: RunMarker) -> None:
    starts = "sys.stdin.readline(); p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True)"
    ends = "sys.stdin.read(); p.kill(); p.wait()"
    owner = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys; {starts}; {ends}", *SLEEPER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        before = Snapshot.take(marker)
        owner.stdin.write(b"\n")
        owner.stdin.flush()
        assert psutil.pid_exists(int(owner.stdout.readline()))
        assert not find_leaks(before, NO_TIME_SECS)


def test_a_run_directory_left_behind_is_named(marker: RunMarker, tmp_path: Path) -> None:
    before = Snapshot.take(marker, tmp_path)
    (tmp_path / "a1b2").mkdir()
    assert str(find_leaks(before, NO_TIME_SECS)) == f"left behind: {tmp_path / 'a1b2'}"
