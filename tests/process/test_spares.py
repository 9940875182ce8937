"""Workers that die are replaced by their warm spare, and a spare that fails harms nothing."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from squall import Config, TopologyBuilder
from squall.scheduler.common.role import Role, RoleKind, processes_of, role_of
from tests.process import parts
from tests.process.conftest import SharedCluster
from tests.process.waiting import wait_for

MODULE = """
import ctypes, os, pathlib, threading, time
from tests.process import parts

print("imported by", os.getpid())
role = pathlib.Path("/proc/self/cmdline").read_text()
if "squall: " in role:
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
if "squall: spare" in role:
    {in_spare}

class Bolt(parts.Pass):
    def prepare(self, conf, context):
        print("attempt", context.attempt, "is", os.getpid())
"""


class Run:
    """A topology of one worker, whose bolt is in a module of its own."""

    def __init__(self, cluster: SharedCluster, directory: Path, module: str) -> None:
        builder = TopologyBuilder()
        builder.set_spout("source", parts.Unending(str(directory)))
        builder.set_bolt("bolt", importlib.import_module(module).Bolt()).shuffle_grouping("source")
        self.run_dir = cluster.run_dir
        self.job = cluster.submit("spares", builder.build(), Config(message_timeout_secs=600))
        wait_for("acks", lambda: self.job.stats().acked > 100)
        [name] = self.job.stats().workers
        self.log = self.run_dir.worker_log(self.job.id, "node-1", int(name.partition(":")[2]))

    def spare(self, *others: int, topology: str = "spares") -> int:
        """Pid of the spare, another than these; with topology "", of one that is not loaded yet."""
        role = Role(RoleKind.SPARE, "node-1", topology)
        return wait_for("a spare", lambda: next((
            each.pid for each in processes_of(self.run_dir, RoleKind.SPARE)
            if role_of(each) == role and each.pid not in others
        ), 0))

    def kill_worker(self, attempt: int) -> int:
        """Kill it at its n-th attempt; pid of the next one, once it has processed something."""
        (worker,) = processes_of(self.run_dir, RoleKind.WORKER)
        worker.kill()
        said = f"attempt {attempt + 1} is "
        wait_for("the next worker", lambda: said in self.log.read_text())
        before = self.job.stats().acked
        wait_for("acks", lambda: self.job.stats().acked > before)
        return int(self.log.read_text().rpartition(said)[2].split()[0])


@contextmanager
def running(
    cluster: SharedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_spare: str = "pass"
) -> Iterator[Run]:
    """In the end everything must be acked, no record blamed, and no spare left."""
    name = f"uses_{abs(hash(in_spare))}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(in_spare=in_spare))
    monkeypatch.syspath_prepend(str(tmp_path))
    run = Run(cluster, tmp_path, name)
    yield run
    (tmp_path / "enough").touch()
    report = run.job.wait_until_drained(timeout=100)
    acked = parts.notes(tmp_path, "acked")
    assert report.dead_letters == 0
    assert {death.reason for death in report.restarts} == {"killed by SIGKILL"}
    assert set(acked) == set(range(max(acked) + 1))
    run.job.kill(0)
    wait_for("the end of the spare", lambda: not processes_of(run.run_dir, RoleKind.SPARE))


def test_a_worker_that_dies_is_replaced_by_its_spare(
    shared_cluster: SharedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(shared_cluster, tmp_path, monkeypatch) as run:
        for attempt in (1, 2):
            spare = run.spare()
            assert run.kill_worker(attempt) == spare
            assert f"imported by {spare}\nattempt {attempt + 1} is {spare}\n" in run.log.read_text()
        # At once again: the next spare is not there yet.
        run.kill_worker(3)
        os.kill(spare := run.spare(), signal.SIGKILL)
        for kind in (RoleKind.FORKING_PARENT, RoleKind.SUPERVISOR):
            spare = run.spare(spare)
            processes_of(run.run_dir, kind)[0].kill()
            wait_for("the end of its spare", lambda spare=spare: not psutil.pid_exists(spare))
        run.spare(spare)


@pytest.mark.parametrize(
    ("in_spare", "reason"),
    [
        ("raise ValueError('not here')", "ValueError: not here"),
        ("ctypes.string_at(0)", "killed by SIGSEGV"),
    ],
)
def test_a_module_that_fails_in_a_spare_harms_nothing(
    shared_cluster: SharedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_spare: str, reason: str
) -> None:
    with running(shared_cluster, tmp_path, monkeypatch, in_spare) as run:
        log = run.run_dir.daemon_log("supervisor-node-1")
        wait_for("word of it", lambda: f"{reason}\n" in log.read_text().partition(f"{run.job.id} has no spare")[2])
        run.kill_worker(1)
        assert log.read_text().count(f"{run.job.id} has no spare") == 1


def test_a_spare_that_hangs_is_not_waited_for(
    shared_cluster: SharedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(shared_cluster, tmp_path, monkeypatch, "threading.Event().wait()") as run:
        assert run.spare(topology="") != run.kill_worker(1)
