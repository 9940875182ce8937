"""What a run leaves behind in its directory is planted once, and named; of processes: test_testing_plugin.py."""

from __future__ import annotations

import socket

import pytest

from squall.ipc.rundir import RunDir
from squall.testing import run_leftovers
from squall.testing.run_leftovers import descriptors, in_directory, left_behind


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


def test_a_directory_is_named(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_leftovers, "PATIENCE_SECS", 0.0)
    assert f"directory {run_dir.path}" in left_behind(run_dir, descriptors())
