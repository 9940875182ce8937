"""A cluster that outlives the program that starts it: starting it in a directory, and stopping it.

Guarantees
    * One cluster per directory, of a size that the machine has room for. A start that fails leaves no process behind.
    * A stop drains first: spouts rest, then it waits until nothing is pending, or the limit. Topologies are kept, and
      go on when a cluster is started in the directory again.
    * A cluster whose Nimbus is gone can be stopped as well; nobody drains it then. One whose Nimbus is about to be
      started again is waited for.

Relies on: `ipc.rundir` for the lock that Nimbus holds. One thread.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

from engine.errors import ClusterError, UsageError
from ipc.run_parent import try_flock
from ipc.rundir import RunDir
from scheduler.client import AWAY_PATIENCE_SECS, Interrupted, NimbusClient
from scheduler.cluster_size import check_cluster, this_machine
from scheduler.daemons import Daemons, daemon_command, daemon_environment, last_line, processes_of
from scheduler.job import Job
from scheduler.topology_view import TopologyView

STOP_GRACE_SECS = 5.0
"""How long workers may take for `close` and `cleanup` before they are killed."""
_STOP_MARGIN_SECS = 5.0
_POLL_SECS = 0.05


@dataclass(frozen=True)
class Stopped:
    """What a stop found."""

    pending: dict[str, int] = field(default_factory=dict)
    """Per topology: messages that were neither acked nor failed when its workers ended."""
    killed: int = 0
    """Processes that had to be ended without Nimbus."""


def start_cluster(path: str | Path, nodes: int, slots: int, *, bound: bool) -> tuple[RunDir, Daemons]:
    """Start Nimbus and supervisors in `path`; `bound` to the life of this process, or to nobody's."""
    check_cluster(nodes, slots, this_machine())
    run_dir = RunDir.create(path)
    starting = try_flock(run_dir.path / "starting")
    if starting is None:
        raise UsageError(f"a cluster is being started in {run_dir.path} by another command")
    try:
        _check_nothing_runs(run_dir)
        daemons = Daemons(run_dir)
        try:
            daemons.start(nodes, slots, bound=bound)
        except BaseException:
            daemons.terminate()
            daemons.reap(time.monotonic() + STOP_GRACE_SECS)
            raise
        return run_dir, daemons
    finally:
        os.close(starting)


class Began(msgspec.Struct):
    """What a keeper says of the start: "" or an error, and whose fault it was."""

    error: str = ""
    wrong_use: bool = False


def start_kept(path: str | Path, nodes: int, slots: int) -> RunDir:
    """Start a cluster with a keeper (`scheduler.keeper_main`), which stays behind; returns when the cluster answers."""
    check_cluster(nodes, slots, this_machine())
    run_dir = RunDir.create(path)
    log_path = run_dir.logs / "keeper.log"
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    arguments = ("--nodes", str(nodes), "--slots", str(slots), "--report-fd", str(write_end))
    try:
        with open(log_path, "ab") as log:
            keeper = subprocess.Popen(
                daemon_command("scheduler.keeper_main", run_dir, *arguments), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, pass_fds=[write_end], start_new_session=True, env=daemon_environment(run_dir),
            )
        os.close(write_end)
        write_end = -1
        with open(read_end, "rb", closefd=False) as pipe:
            said = pipe.read()
    finally:
        os.close(read_end)
        if write_end >= 0:
            os.close(write_end)
    if not said:
        code = keeper.wait()
        raise ClusterError(f"the cluster's keeper exited with code {code}: {last_line(log_path)}")
    began = msgspec.json.decode(said, type=Began)
    if began.error:
        keeper.wait()
        raise UsageError(began.error) if began.wrong_use else ClusterError(began.error)
    # It stays: its destructor would complain of a child that still runs.
    keeper.returncode = 0
    return run_dir


def _check_nothing_runs(run_dir: RunDir) -> None:
    holder = run_dir.lock_holder()
    if holder is not None:
        raise UsageError(
            f"a cluster runs in {run_dir.path} already (Nimbus is pid {holder}): `squall status` shows it, "
            f"`squall down` stops it"
        )
    left = processes_of(run_dir)
    if left:
        raise UsageError(
            f"{len(left)} processes of an earlier cluster still run in {run_dir.path}, without Nimbus: "
            f"`squall nimbus` starts it again and they go on, `squall down` ends them"
        )


def stop_cluster(run_dir: RunDir, drain_secs: float, on_wait: Callable[[], bool | None] | None = None) -> Stopped:
    """Drain for at most `drain_secs`, then end everything. `on_wait`: True means, do not drain any longer."""
    if not (math.isfinite(drain_secs) and drain_secs >= 0):
        raise UsageError(f"the wait is {drain_secs}, allowed is a number of seconds from 0 up")
    if not _await_kept_nimbus(run_dir):
        return Stopped(killed=_end_processes(run_dir))
    with NimbusClient(run_dir, patience_secs=AWAY_PATIENCE_SECS) as client:
        jobs = [Job(client, record, run_dir) for record in client.get_cluster().topologies]
        try:
            views = _views(jobs)
            client.shutdown(STOP_GRACE_SECS, drain_secs)
            limit = drain_secs + STOP_GRACE_SECS + _STOP_MARGIN_SECS
            try:
                client.await_end(limit, on_wait)
            except Interrupted:
                client.shutdown(0.0)
                client.await_end(_STOP_MARGIN_SECS)
            pending = {job.name: view.pending() for job, view in views}
        finally:
            for job in jobs:
                job.close()
    # A forking parent ends a moment after its supervisor.
    _await_none(run_dir, _STOP_MARGIN_SECS)
    return Stopped(pending, _end_processes(run_dir))


def _views(jobs: list[Job]) -> list[tuple[Job, TopologyView]]:
    """The boards of what runs; a topology that has gone meanwhile has none."""
    views = []
    for job in jobs:
        with contextlib.suppress(UsageError, ClusterError):
            view = job.view()
            if view is not None:
                views.append((job, view))
    return views


def _await_kept_nimbus(run_dir: RunDir) -> bool:
    """Whether there is a Nimbus, or a keeper brings it back while we wait."""
    deadline = time.monotonic() + AWAY_PATIENCE_SECS
    while run_dir.lock_holder() is None:
        kept = any(_runs(process, "scheduler.keeper_main") for process in processes_of(run_dir))
        if not kept or time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECS)
    return True


def _end_processes(run_dir: RunDir) -> int:
    """End what runs without a Nimbus: politely, because supervisors stop their workers, then by force. How many."""
    for process in processes_of(run_dir):
        # First, or it would start again what is being ended.
        if _runs(process, "scheduler.keeper_main"):
            with contextlib.suppress(psutil.Error):
                process.kill()
    found = processes_of(run_dir)
    supervisors = [process for process in found if _runs(process, "scheduler.supervisor_main")]
    for process in supervisors:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    if supervisors:
        _await_none(run_dir, STOP_GRACE_SECS + _STOP_MARGIN_SECS)
    for process in processes_of(run_dir):
        with contextlib.suppress(psutil.Error):
            process.kill()
    left = _await_none(run_dir, _STOP_MARGIN_SECS)
    if left:
        raise ClusterError(f"processes {', '.join(str(process.pid) for process in left)} do not end")
    return len(found)


def _await_none(run_dir: RunDir, secs: float) -> list[psutil.Process]:
    """Wait until no process of the cluster is left; those that are after `secs`."""
    deadline = time.monotonic() + secs
    while (left := processes_of(run_dir)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECS)
    return left


def _runs(process: psutil.Process, module: str) -> bool:
    try:
        return module in process.cmdline()
    except psutil.Error:
        return False
