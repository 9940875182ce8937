"""Whatever a run can leave behind is planted once, and named."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from squall.chaos import audit as audits
from squall.chaos.audit import Audit
from squall.ipc.rundir import RunDir
from squall.scheduler.common.mark import RUN_DIR_MARK
from squall.testing import leftovers


@contextmanager
def process(program: str, *, of: RunDir | None) -> Iterator[int]:
    """A process that has run a line of Python and stays; `of`: with the mark of this run."""
    environment = {name: value for name, value in os.environ.items() if name != RUN_DIR_MARK}
    environment |= {} if of is None else {RUN_DIR_MARK: str(of.path)}
    lines = f"import os, mmap, subprocess\n{program}\nprint('there', flush=True)\ninput()"
    made = subprocess.Popen(
        [sys.executable, "-c", lines], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert made.stdin is not None
    assert made.stdout is not None
    try:
        assert made.stdout.readline() == b"there\n"
        yield made.pid
    finally:
        made.stdin.close()
        made.stdout.close()
        made.kill()
        made.wait()


@pytest.fixture
def segment() -> Iterator[Path]:
    path = Path("/dev/shm") / f"squall-audit-{os.getpid()}"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def without_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "ZOMBIE_SECS", 0.0)
    monkeypatch.setattr(leftovers, "PATIENCE_SECS", 0.0)


def test_nothing_is_left_of_a_clean_run(run_dir: RunDir) -> None:
    audit = Audit()
    with process("file = open(os.environ['SQUALL_RUN_DIR'] + '/key')", of=run_dir):
        audit.look(run_dir)
        assert audit.zombies(run_dir) == []
    assert audit.in_directory(run_dir) == []
    run_dir.remove()
    assert audit.left(run_dir) == []


def test_files_of_users_in_shared_memory_are_none_of_its_business(run_dir: RunDir, segment: Path) -> None:
    """A component may keep its output there."""
    audit = Audit()
    opens = f"new = open({str(segment)!r}, 'w+b'); new.write(b'x' * 9); new.flush()"
    with process(f"{opens}; map = mmap.mmap(new.fileno(), 0)", of=run_dir):
        audit.look(run_dir)
    run_dir.remove()
    assert segment.exists()
    assert audit.left(run_dir) == []


def test_memory_without_a_name_that_another_process_holds_is_named(run_dir: RunDir) -> None:
    audit = Audit()
    makes = "memory = os.memfd_create('audited'); os.ftruncate(memory, 1)"
    with process(makes, of=run_dir) as first:
        audit.look(run_dir)
        with process(f"held = os.open('/proc/{first}/fd/3', os.O_RDWR)", of=None) as second:
            os.kill(first, signal.SIGKILL)
            run_dir.remove()
            found = audit.left(run_dir)
            assert f"process {second} holds /memfd:audited (deleted)" in found


def test_sockets_boards_and_unfinished_files_in_the_directory_are_named(run_dir: RunDir) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(run_dir.path / "s" / "one"))
    for name in ("boards/words-1", "nimbus.seal.new"):
        (run_dir.path / name).touch()
    (run_dir.path / "logs" / "nimbus.log").touch()
    (run_dir.states / "a-task-of-a-user.new").touch()
    assert Audit().in_directory(run_dir) == [
        f"board {run_dir.path}/boards/words-1", f"socket {run_dir.path}/s/one",
        f"unfinished file {run_dir.path}/nimbus.seal.new",
    ]  # fmt: skip


def test_a_socket_that_is_still_bound_and_a_descriptor_are_named(run_dir: RunDir) -> None:
    audit = Audit()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(run_dir.path / "s" / "one"))
        run_dir.remove()
        found = audit.left(run_dir)
    assert f"socket {run_dir.path}/s/one is still open" in found
    assert any(line.startswith("descriptor ") and "of this process: socket:" in line for line in found)


def test_a_file_that_an_unmarked_process_holds_is_named(run_dir: RunDir) -> None:
    audit = Audit()
    with process(f"file = open({str(run_dir.key_file)!r})", of=None) as pid:
        run_dir.remove()
        assert f"process {pid} holds {run_dir.key_file} (deleted)" in audit.left(run_dir)


def test_a_process_and_a_directory_are_named(run_dir: RunDir) -> None:
    audit = Audit()
    with process("", of=run_dir) as pid:
        found = audit.left(run_dir)
    assert found[0].startswith(f"process {pid}: ")
    assert f"directory {run_dir.path}" in found


def test_zombies_are_named(run_dir: RunDir) -> None:
    audit = Audit()
    dies = "child = os.fork()\nif not child: os._exit(0)\nos.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)"
    with process(dies, of=run_dir) as parent:
        (found,) = audit.zombies(run_dir)
        assert found.startswith("zombie ")
        assert found.endswith(f", a child of process {parent}")
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    run_dir.remove()
    assert audit.left(run_dir) == [f"zombie {child}, a child of this process"]
    os.waitpid(child, 0)
