"""Whatever a run can leave behind is planted once, and named."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator

import pytest

from squall.ipc.rundir import RunDir
from squall.scheduler.common.role import RUN_DIR_MARK
from squall.testing import run_leftovers
from squall.testing.run_leftovers import descriptors, in_directory, left_behind


@pytest.fixture
def child(run_dir: RunDir) -> Iterator[int]:
    """The pid of a process of this run, that stays."""
    marked = {**os.environ, RUN_DIR_MARK: str(run_dir.path)}
    with subprocess.Popen(["sleep", "3600"], env=marked) as made:
        yield made.pid
        made.kill()


@pytest.fixture(autouse=True)
def without_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_leftovers, "PATIENCE_SECS", 0.0)


def test_sockets_boards_and_unfinished_files_in_the_directory_are_named(run_dir: RunDir) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(run_dir.path / "s" / "one"))
    for name in ("boards/words-1", "nimbus.db.copy.new"):
        (run_dir.path / name).touch()
    (run_dir.path / "logs" / "nimbus.log").touch()
    (run_dir.states / "a-task-of-a-user.new").touch()
    assert in_directory(run_dir) == [
        f"board {run_dir.path}/boards/words-1", f"socket {run_dir.path}/s/one",
        f"unfinished file {run_dir.path}/nimbus.db.copy.new",
    ]  # fmt: skip


def test_a_process_a_descriptor_and_a_directory_are_named(run_dir: RunDir, child: int) -> None:
    before = descriptors()
    with socket.socket(socket.AF_UNIX):
        found = left_behind(run_dir, before)
    assert found[0].startswith(f"process {child}: sleep 3600")
    assert f"directory {run_dir.path}" in found
    assert any(line.startswith("descriptor ") and "of this process: socket:" in line for line in found)
