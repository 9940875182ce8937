"""Starting a cluster: room for it, its directory, and who is told that it answers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from squall import LocalCluster, UsageError
from squall.cli.cluster import tell_ready
from squall.ipc.rundir import RunDir
from squall.scheduler.cluster import starting
from squall.scheduler.cluster.starting import check_cluster, right_to_start, start_cluster, take_directory
from squall.scheduler.common.role import daemon_environment, processes_of
from tests.unit.run_dirs import files_of


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


@pytest.mark.parametrize(("nodes", "slots"), [(0, 4), (1, 0), (-1, -1), ("x", 1), (1, None), (1, 1.5), (10**8, 1)])
def test_whatever_starts_a_cluster_asks_first_for_at_least_one_and_for_room(
    tmp_path: Path, nodes: Any, slots: Any
) -> None:
    check_cluster(1, 4)
    wrong = f"^{f'slots is {slots}' if nodes == 1 else f'nodes is {nodes!r}'}; allowed: an integer from 1 up$"
    for start in (start_cluster, lambda path, nodes, slots: LocalCluster(nodes, slots, path)):
        with pytest.raises(UsageError, match="slots" if nodes == 10**8 else wrong):
            start(tmp_path / "run", nodes, slots)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_when_the_cluster_answers(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"@{tmp_path.name}-{id(tmp_path)}" if abstract else str(tmp_path / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind("\0" + name[1:] if abstract else name)
        server.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        tell_ready()
        assert server.recv(64) == b"READY=1"
    # Said once; and nobody who listens no more is waited for.
    tell_ready()
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    tell_ready()


def test_all_of_many_make_the_same_directory(tmp_path: Path) -> None:
    barrier = threading.Barrier(4, timeout=20)

    def key_of(path: Path) -> bytes:
        barrier.wait()
        return RunDir.create(path).key()

    with ThreadPoolExecutor(4) as threads:
        for number in range(30):
            assert len({*threads.map(key_of, [tmp_path / str(number)] * 4)}) == 1


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
