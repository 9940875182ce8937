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
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from engine.errors import ClusterError, UsageError
from ipc.run_parent import try_flock
from ipc.rundir import RunDir
from scheduler.client import AWAY_PATIENCE_SECS, Interrupted, NimbusClient
from scheduler.daemons import SUPERVISOR, Daemons, fork, processes_of, runs
from scheduler.job import Job
from scheduler.topology_view import TopologyView

KEEPER = "scheduler.keeper_main"
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


def start_cluster(run_dir: RunDir, nodes: int, slots: int, lifeline: int | None) -> Daemons:
    """Fork Nimbus and supervisors, bound to whoever holds the other end of `lifeline`, or to nobody. Called by the
    keeper."""
    starting = try_flock(run_dir.path / "starting")
    if starting is None:
        raise UsageError(f"a cluster is being started in {run_dir.path} by another command")
    try:
        _check_nothing_runs(run_dir)
        daemons = Daemons(run_dir, fork)
        if lifeline is not None:
            daemons.bind(lifeline)
        try:
            daemons.start(nodes, slots)
        except BaseException:
            daemons.terminate()
            daemons.reap(time.monotonic() + STOP_GRACE_SECS)
            raise
        return daemons
    finally:
        os.close(starting)


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
        kept = any(runs(process, KEEPER) for process in processes_of(run_dir))
        if not kept or time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECS)
    return True


def _end_processes(run_dir: RunDir) -> int:
    """End what runs without a Nimbus: politely, because supervisors stop their workers, then by force. How many."""
    for process in processes_of(run_dir):
        # First, or it would start again what is being ended.
        if runs(process, KEEPER):
            with contextlib.suppress(psutil.Error):
                process.kill()
    found = processes_of(run_dir)
    supervisors = [process for process in found if runs(process, SUPERVISOR)]
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
