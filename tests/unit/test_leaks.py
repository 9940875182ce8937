"""The leak checks see what they are for: each kind of leak is planted, named in the evidence, and gone when cleaned."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
import zmq

from tests import leaks
from tests.leaks import RunMarker, Snapshot, find_leaks

SLEEPER = (sys.executable, "-c", "import signal; signal.pause()")
NO_TIME_SECS = 0.0


@pytest.fixture(autouse=True)
def shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for the machine's, which other test runs look at, and leave things in, meanwhile."""
    stand_in = tmp_path / "shm"
    stand_in.mkdir()
    monkeypatch.setattr(leaks, "SHARED_MEMORY", stand_in)
    return stand_in


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


def test_file_left_open_is_named(tmp_path: Path) -> None:
    before = Snapshot.take()
    with (tmp_path / "left-open").open("w"):
        found = find_leaks(before, NO_TIME_SECS)
    assert len(found.evidence) == 1
    assert str(found).endswith(str(tmp_path / "left-open"))
    assert not find_leaks(before)


def test_socket_left_open_is_named_with_its_address(tmp_path: Path) -> None:
    before = Snapshot.take()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
        found = find_leaks(before, NO_TIME_SECS)
    assert f"{tmp_path}/s" in str(found)


def test_thread_left_running_is_shown_with_its_stack() -> None:
    before = Snapshot.take()
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="left-running", daemon=True)
    thread.start()
    found = find_leaks(before, NO_TIME_SECS)
    done.set()
    thread.join()
    assert "thread 'left-running' (Thread, daemon=True)" in str(found)
    assert "in wait" in str(found)
    assert not find_leaks(before)


def test_thread_unknown_to_threading_is_seen() -> None:
    before = Snapshot.take()
    hold, started = threading.Lock(), threading.Event()

    def wait() -> None:
        started.set()
        hold.acquire()

    hold.acquire()
    _thread.start_new_thread(wait, ())
    assert started.wait(30)
    found = find_leaks(before, NO_TIME_SECS)
    hold.release()
    assert "started without the threading module" in str(found) or "_DummyThread" in str(found)
    assert not find_leaks(before)


def test_zeromq_context_left_open_is_seen() -> None:
    before = Snapshot.take()
    with zmq.Context() as context, context.socket(zmq.PUSH):  # its threads come with the first socket
        deadline = time.monotonic() + 30
        while "a ZeroMQ context that was not terminated" not in str(found := find_leaks(before, NO_TIME_SECS)):
            assert time.monotonic() < deadline, found  # each thread names itself, a moment after it began
    assert not find_leaks(before)


def test_waits_for_what_is_on_its_way_out() -> None:
    before = Snapshot.take()
    timer = threading.Timer(0.1, lambda: None)
    timer.start()
    assert not find_leaks(before, deadline_secs=30)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "quick"])
def test_child_left_running_is_named_and_ended(marker: RunMarker, whole: bool) -> None:
    before = Snapshot.take(marker if whole else None)
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


def start_orphan(environment: Mapping[str, str] | None, before_it_waits: str = "pass") -> int:
    """A process whose parent, our child, is gone; without an environment it is forked only, and no new program."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.fork() == 0:
                os.setsid()
                if environment is not None:
                    os.set_inheritable(theirs, True)
                    program = f"import os, signal; {before_it_waits}; os.write({theirs}, b'%d' % os.getpid())"
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


def test_shared_memory_left_behind_is_named(marker: RunMarker, shared_memory: Path) -> None:
    before = Snapshot.take(marker)
    left = shared_memory / "squall-test"
    left.write_bytes(b"x")
    found = find_leaks(before, NO_TIME_SECS)
    left.unlink()
    assert str(found) == f"left behind: {left}"


@pytest.mark.parametrize("name", ["libpod_lock", "sem.mp-8zc138i6"])
def test_what_others_leave_there_is_not_ours(marker: RunMarker, shared_memory: Path, name: str) -> None:
    before = Snapshot.take(marker)
    (shared_memory / name).touch()
    assert not find_leaks(before, NO_TIME_SECS)


def test_shared_memory_in_use_by_others_is_not_ours(marker: RunMarker, shared_memory: Path) -> None:
    before = Snapshot.take(marker)
    path = shared_memory / "squall-test"
    # As a program that someone else started: neither a child of ours nor marked.
    stranger = start_orphan({}, f"held = open({str(path)!r}, 'w')")
    in_use = find_leaks(before, NO_TIME_SECS)
    os.kill(stranger, signal.SIGKILL)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(stranger).wait(30)
    abandoned = find_leaks(before, NO_TIME_SECS)
    path.unlink()
    assert str(in_use) == ""
    assert str(abandoned) == f"left behind: {path}"


def test_run_directory_left_behind_is_named(marker: RunMarker, tmp_path: Path) -> None:
    parent = tmp_path / "squall"
    before = Snapshot.take(marker, parent)
    (parent / "a1b2").mkdir(parents=True)
    assert str(find_leaks(before, NO_TIME_SECS)) == f"left behind: {parent / 'a1b2'}"


def test_seed_can_be_repeated(seed: int) -> None:
    assert 0 <= seed < 2**64
