"""The run directory: its layout, its lock, its key, and who may enter, or start a cluster there."""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from squall import LocalCluster, UsageError
from squall.cli.steering.cluster import tell_ready
from squall.ipc.private import make_levels
from squall.ipc.run_parent import (
    CREATOR_FILE,
    default_parent,
    make_anonymous,
    standing_directory,
    sweep_stale,
)
from squall.ipc.rundir import RunDir
from squall.scheduler.cluster import starting
from squall.scheduler.cluster.starting import check_cluster, right_to_start, start_cluster, take_directory
from squall.scheduler.common.role import daemon_environment, processes_of
from tests.unit.run_dirs import files_of


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    made = tmp_path / "p"
    made.mkdir(mode=0o700)
    return made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_anonymous_one_is_private_and_short(run_dir: RunDir) -> None:
    assert run_dir.path.parent == default_parent()
    assert len(run_dir.path.name) <= 10
    assert mode(run_dir.path) == mode(run_dir.code) == mode(default_parent()) == 0o700
    assert mode(run_dir.key_file) == 0o600
    assert len(run_dir.key()) == 32
    assert RunDir.open(run_dir.path).key() == run_dir.key()


def test_a_named_one_can_be_taken_over(tmp_path: Path) -> None:
    first = RunDir.create(tmp_path / "a" / "run")
    assert RunDir.create(first.path).key() == first.key()
    assert not (first.path / CREATOR_FILE).exists()
    for _ in range(2):
        first.remove()
    assert not first.path.exists()


def test_open_names_what_is_wrong(tmp_path: Path, run_dir: RunDir) -> None:
    with pytest.raises(UsageError, match=f"there is no run directory at {tmp_path}/none"):
        RunDir.open(tmp_path / "none")
    link = tmp_path / "link"
    link.symlink_to(run_dir.path)
    with pytest.raises(UsageError, match="is not a directory"):
        RunDir.open(link)
    run_dir.path.chmod(0o750)
    with pytest.raises(UsageError, match="has mode 0750, must be 0700: if it is a cluster's, chmod 700 mends it"):
        RunDir.open(run_dir.path)
    run_dir.path.chmod(0o700)


def test_one_process_holds_the_lock(run_dir: RunDir) -> None:
    assert run_dir.lock_holder() is None
    lock = run_dir.lock()
    assert run_dir.lock_holder() == str(os.getpid())
    with pytest.raises(UsageError, match=f"run directory {run_dir.path} is in use by pid {os.getpid()}"):
        RunDir.open(run_dir.path).lock()
    lock.close()
    assert run_dir.lock_holder() is None


def test_paths_that_are_too_long_are_refused_early(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90)
    with pytest.raises(UsageError, match="the system allows 107: choose a run directory with a shorter path"):
        RunDir.create(deep)
    assert not deep.exists()
    run_dir = RunDir("/r")
    run_dir.socket_length_check("n" * 70)
    for path_of in (run_dir.socket_length_check, lambda node: run_dir.worker_socket("x-1-00000000", 1, node, 6700, 1)):
        with pytest.raises(UsageError, match="the system allows 107"):
            path_of("n" * 100)


def test_a_worker_listens_on_a_path_that_no_other_worker_ever_has() -> None:
    run_dir = RunDir("/r")
    workers = list(itertools.product(("x-1-00000000", "x-2-00000000"), (1, 2), ("a", "b"), (6700, 6701), (1, 2)))
    assert len({run_dir.worker_socket(*worker) for worker in workers}) == len(workers)


def test_no_name_leads_out_of_the_directory() -> None:
    run_dir = RunDir("/r")
    assert run_dir.topology_state("../../a\0b%") == Path("/r/state/..%2f..%2fa%00b%25")
    assert run_dir.attempts("x", "..", 3) == Path("/r/state/x/.attempts/..-3")
    assert run_dir.history("../x") == Path("/r/logs/history-..%2fx.jsonl")
    assert run_dir.worker_log("x-1-00000000", "../a", 6700).parent == run_dir.worker_logs("x-1-00000000")
    assert run_dir.node_socket("../a").parent == Path("/r/n")
    assert run_dir.worker_socket("x-1-00000000", 1, "../a", 6700, 1).parent == Path("/r/s")


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_means_a_whole_directory_is_refused(name: str) -> None:
    run_dir = RunDir("/r")
    for path_of in (
        run_dir.topology_state, run_dir.board, run_dir.metrics, run_dir.failures, run_dir.worker_logs,
        lambda text: run_dir.attempts(text, "c", 1),
    ):
        with pytest.raises(UsageError, match="cannot be a name: it would mean a whole directory of the cluster"):
            path_of(name)


# ---- sweep ----


def test_only_what_nobody_owns_is_swept(parent: Path) -> None:
    living, _ = creator = make_anonymous(parent)
    abandoned, fd = make_anonymous(parent)
    (abandoned / "file").write_text("x")
    os.close(fd)
    half_made = parent / "r-0123abcd"
    half_made.mkdir()
    served, served_fd = make_anonymous(parent)
    os.close(served_fd)
    lock = RunDir(served).lock()
    named = RunDir.create(parent / "r-aaaaaaaa")
    other = parent / "other"
    other.mkdir()
    assert sweep_stale(parent) == sorted([abandoned, half_made])
    assert sorted(parent.iterdir()) == sorted([living, served, named.path, other])
    lock.close()
    os.close(creator[1])
    assert sweep_stale(parent) == sorted([living, served])


def test_a_sweep_keeps_away_while_a_directory_is_being_made(parent: Path) -> None:
    (parent / "r-01234567").mkdir()
    making = os.open(parent, os.O_RDONLY)
    fcntl.flock(making, fcntl.LOCK_EX)
    assert sweep_stale(parent) == []
    os.close(making)
    assert len(sweep_stale(parent)) == 1


def test_a_directory_is_not_locked_under_the_sweep(run_dir: RunDir) -> None:
    """Nimbus opens the lock file, the sweep moves the directory away, Nimbus gets the lock of a file that is gone."""
    run_dir.lock().close()
    run_dir.lock_file.rename(run_dir.path / "moved")
    lock = run_dir.lock()
    assert run_dir.lock_holder() == str(os.getpid())
    lock.close()


def test_what_the_default_cluster_must_keep_is_not_in_the_runtime_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, state = Path(tempfile.mkdtemp(prefix="rt-")), tmp_path / "state"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    path = standing_directory()
    assert path == runtime / "squall" / "cluster"
    try:
        made = RunDir.create(path)
        durable = state / "squall" / "cluster"
        assert mode(durable) == 0o700
        kept = [made.nimbus_db, made.code, made.logs, made.lock_file, made.failures("x"), made.states]
        passing = [made.key_file, made.boards, made.nimbus_socket, made.node_socket("n")]
        assert [each.is_relative_to(durable) for each in kept + passing] == [True] * 6 + [False] * 4
        lock = RunDir.open(path).lock()
        # From a shell with another runtime directory: the same cluster, and the same lock.
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime / "squall"))
        assert standing_directory() == path
        other = RunDir.create(runtime / "squall" / "squall" / "cluster")
        with pytest.raises(UsageError, match="is in use by pid"):
            other.lock()
        lock.close()
    finally:
        shutil.rmtree(runtime)


def test_what_is_missing_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "failures" / "t-1"
    for _ in range(2):
        make_levels(path, 2)
    assert mode(path) == mode(path.parent) == 0o700


def test_a_removed_run_directory_does_not_come_back(tmp_path: Path) -> None:
    gone = tmp_path / "cluster"
    with pytest.raises(FileNotFoundError):
        make_levels(gone / "failures" / "t-1", 2)
    assert not gone.exists()


# ---- starting a cluster: room for it, its directory, and who is told that it answers ----

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
    lock.close()
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
