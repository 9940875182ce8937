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

from squall import Config, Job, LocalCluster, TopologyBuilder
from squall.scheduler.common.role import Role, RoleKind, processes_of, role_of
from tests.process import parts
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
        self.life = os.getpid(), context.attempt
        self.noted = False

    def execute(self, tup, collector):
        if not self.noted:
            parts.note({directory!r}, "attempts", self.life)
            self.noted = True
"""


class Run:
    """A topology of one worker, whose bolt is in a module of its own."""

    def __init__(self, cluster: LocalCluster, job: Job, directory: Path) -> None:
        self.cluster = cluster
        self.job = job
        self.directory = directory
        self.log = cluster.run_dir.worker_log(job.id, "node-1", 6700)

    def worker(self) -> int:
        view = self.job.view()
        assert view is not None
        return view.board.slot(0).pid

    def spares(self, topology: str = "spares") -> list[psutil.Process]:
        """Loaded ones; topology "": those that load."""
        role = Role(RoleKind.SPARE, "node-1", topology)
        return [each for each in processes_of(self.cluster.run_dir, RoleKind.SPARE) if role_of(each) == role]

    def spare(self, *others: int) -> psutil.Process:
        """The spare, another than these."""
        return wait_for("a spare", lambda: next((each for each in self.spares() if each.pid not in others), None))

    def kill_worker(self) -> int:
        """Kill it; pid of the next one, once it has executed something."""
        pid = self.worker()
        os.kill(pid, signal.SIGKILL)
        wait_for("the next worker", lambda: self.worker() not in (0, pid) and self._executes(self.worker()))
        return self.worker()

    def _executes(self, pid: int) -> bool:
        return any(by == pid for by, _ in parts.notes(self.directory, "attempts"))

    def end(self) -> None:
        """Drain and remove it; everything must be acked, no record be blamed, and no spare be left."""
        (self.directory / "enough").touch()
        report = self.job.wait_until_drained(timeout=100)
        acked = parts.notes(self.directory, "acked")
        assert report.dead_letters == 0
        assert set(acked) == set(range(max(acked) + 1))
        self.job.kill(0)
        wait_for("the end of the spare", lambda: not processes_of(self.cluster.run_dir, RoleKind.SPARE))


@contextmanager
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_spare: str = "pass") -> Iterator[Run]:
    name = f"uses_{abs(hash(in_spare))}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(in_spare=in_spare, directory=str(tmp_path)))
    monkeypatch.syspath_prepend(str(tmp_path))
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Unending(str(tmp_path)))
    builder.set_bolt("bolt", importlib.import_module(name).Bolt()).shuffle_grouping("source")
    with LocalCluster(nodes=1, slots_per_node=1) as cluster:
        job = cluster.submit("spares", builder.build(), Config(message_timeout_secs=600))
        run = Run(cluster, job, tmp_path)
        wait_for("acks", lambda: len(parts.notes(tmp_path, "acked")) > 100)
        yield run
        run.end()


def test_a_worker_that_dies_is_replaced_by_its_spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path, monkeypatch) as run:
        for incarnation in (2, 3):
            pid = run.spare().pid
            assert run.kill_worker() == pid
            assert [pid, incarnation] in parts.notes(tmp_path, "attempts")
            assert role_of(psutil.Process(pid)) == Role(RoleKind.WORKER, "node-1:6700", "spares")
            assert f"imported by {pid}\n" in run.log.read_text()
        # At once again: the next spare is not there yet.
        run.kill_worker()
        spare = run.spare()
        spare.kill()
        run.spare(spare.pid)
        assert len(run.job.stats().restarts) == 3


def test_spares_end_with_their_forking_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path, monkeypatch) as run:
        for kind in (RoleKind.FORKING_PARENT, RoleKind.SUPERVISOR):
            spare = run.spare()
            (daemon,) = processes_of(run.cluster.run_dir, kind)
            daemon.kill()
            wait_for("the end of its spare", lambda spare=spare: not psutil.pid_exists(spare.pid))
            run.spare(spare.pid)


@pytest.mark.parametrize(
    ("in_spare", "reason"),
    [
        ("raise ValueError('not here')", "ValueError: not here"),
        ("os._exit(3)", "exited with code 3"),
        ("ctypes.string_at(0)", "killed by SIGSEGV"),
        ("threading.Event().wait()", ""),
    ],
)
def test_a_module_that_fails_in_a_spare_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_spare: str, reason: str
) -> None:
    with running(tmp_path, monkeypatch, in_spare) as run:
        if reason:
            log = run.cluster.run_dir.daemon_log("supervisor-node-1")
            wait_for("word of it", lambda: f"{run.job.id} has no spare," in log.read_text())
            (line,) = [line for line in log.read_text().splitlines() if "has no spare" in line]
            assert line.endswith(reason)
        else:
            hung = wait_for("a spare that hangs", lambda: run.spares(""))
        before = run.worker()
        pid = run.kill_worker()
        assert role_of(psutil.Process(pid)) == Role(RoleKind.WORKER, "node-1:6700", "spares")
        if not reason:
            assert pid != hung[0].pid
        assert [death.reason for death in run.job.stats().restarts] == ["killed by SIGKILL"]
        assert before != pid
