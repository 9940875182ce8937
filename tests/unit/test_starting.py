"""The right to start a cluster in a directory: one has it, the others learn who and change nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from squall.engine.errors import UsageError
from squall.ipc.rundir import RunDir
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.cluster.starting import right_to_start, start_cluster
from squall.scheduler.common.role import daemon_environment, processes_of
from tests.unit.run_dirs import files_of


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "run")


def test_whoever_comes_second_starts_and_touches_nothing(run_dir: RunDir) -> None:
    with right_to_start(run_dir):
        before = files_of(run_dir.path)
        for start in (start_cluster, lambda path, nodes, slots: LocalCluster(nodes, slots, path)):
            with pytest.raises(UsageError, match=f"^a cluster is being started in {run_dir.path} by another command$"):
                start(run_dir.path, 1, 1)
    assert processes_of(run_dir) == []
    assert files_of(run_dir.path) == before


def test_a_nimbus_that_runs_is_named_and_its_sockets_stay(run_dir: RunDir) -> None:
    run_dir.nimbus_socket.touch()
    lock = run_dir.lock()
    runs = rf"runs in {run_dir.path} already \(Nimbus is pid {os.getpid()}\)"
    with pytest.raises(UsageError, match=runs), right_to_start(run_dir):
        pytest.fail("it has no right")
    assert run_dir.nimbus_socket.exists()
    lock.release()
    with right_to_start(run_dir):
        assert not run_dir.nimbus_socket.exists()


def test_one_process_that_was_left_is_one(run_dir: RunDir) -> None:
    left = marked(run_dir)
    one = r"^1 process of an earlier cluster still runs in .*: `squall n"
    try:
        with pytest.raises(UsageError, match=one), right_to_start(run_dir):
            pytest.fail("it has no right")
    finally:
        left.kill()
        left.wait()
    with right_to_start(run_dir):
        pass


@pytest.mark.parametrize("name", ["key.0a1b2c3d", "durable"])
def test_a_directory_that_another_is_making_is_a_run_directory(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    if name == "durable":
        (tmp_path / "kept").mkdir(mode=0o700)
        (path / name).symlink_to(tmp_path / "kept")
    else:
        (path / name).touch()
    RunDir.create(path)


def marked(run_dir: RunDir) -> subprocess.Popen[bytes]:
    """A process that looks like one of the cluster's."""
    return subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"], env=daemon_environment(run_dir)
    )
