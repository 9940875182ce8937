"""Programs that start daemons in one fresh directory at once: all succeed, with one key."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import psutil
import pytest

from squall.ipc.rundir import RunDir
from squall.scheduler.cluster import starting
from squall.scheduler.cluster.starting import take_directory


def test_all_of_many_make_the_same_directory(tmp_path: Path) -> None:
    for number in range(30):
        path = tmp_path / str(number)
        keys: list[bytes] = []
        barrier = threading.Barrier(4)

        def make(path: Path = path, keys: list[bytes] = keys, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(20)
            keys.append(RunDir.create(path).key())

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(keys) == 4
        assert len(set(keys)) == 1


def test_a_daemon_that_is_started_at_the_same_time_is_no_lost_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had made the key before it was marked, and after we had looked for one."""

    def processes_of(run_dir: RunDir) -> list[psutil.Process]:
        RunDir.create(run_dir.path)
        return [psutil.Process()]

    monkeypatch.setattr(starting, "processes_of", processes_of)
    assert take_directory(tmp_path / "run").key_file.exists()


def test_one_that_was_begun_and_left_without_a_key_is_taken(tmp_path: Path) -> None:
    """As by a program that found no room for the key."""
    os.symlink(tmp_path, tmp_path / "durable")
    assert len(RunDir.create(tmp_path).key()) == 32
