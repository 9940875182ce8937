"""A cluster that outlives the program that starts it: starting it in a directory, and stopping it.

Guarantees
    * A start that fails leaves no process behind.
    * A stop drains first: spouts rest, then it waits until nothing is pending, or the limit. Topologies are kept, and
      go on when a cluster is started in the directory again.
    * A cluster whose Nimbus is gone, is stopped or hangs can be stopped as well; nobody drains it then. One whose
      Nimbus is about to be started again is waited for.

Relies on: `scheduler.cluster.starting` for one cluster per directory; `ipc.rundir` for the lock that Nimbus holds. One
thread.
"""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from squall.engine.errors import ClusterError, UsageError
from squall.engine.report.account import Unfinished
from squall.ipc.control import NoAnswer
from squall.ipc.rundir import RunDir
from squall.scheduler.client.job import Job
from squall.scheduler.client.nimbus_client import AWAY_PATIENCE_SECS, TIMEOUT_SECS, Interrupted, NimbusClient, NotEnded
from squall.scheduler.cluster.daemons import NIMBUS, SUPERVISOR, Daemons, fork
from squall.scheduler.common.mark import processes_of, runs, signal_marked
from squall.scheduler.common.process import is_stopped
from squall.scheduler.common.process_record import end_record
from squall.scheduler.records.topology_view import TopologyView

KEEPER = "squall.scheduler.cluster.keeper_main"
ANSWER_SECS = TIMEOUT_SECS
"""How long a stop waits for an answer of Nimbus before it takes it for hung."""
STOPPED_SECS = 2.0
"""How long it waits for one that is stopped by SIGSTOP: it cannot answer before somebody lets it go on."""
STOP_GRACE_SECS = 5.0
"""How long workers may take for `close` and `cleanup` before they are killed."""
_STOP_MARGIN_SECS = 5.0
_POLL_SECS = 0.05


@dataclass(frozen=True)
class Stopped:
    """What a stop found."""

    pending: dict[str, Unfinished] = field(default_factory=dict)
    """Per topology: messages that were neither acked nor failed when its workers ended, those held for a retry, and
    untracked tuples that were not executed."""
    killed: int = 0
    """Processes that had to be ended without Nimbus."""
    is_silent: bool = False
    """Because Nimbus was there, and did not answer or not end."""


def start_cluster(
    run_dir: RunDir, nodes: int, slots: int, lifeline: int | None, *, faults: bool = True
) -> Daemons:
    """Fork Nimbus and supervisors, bound to whoever holds the other end of `lifeline`, or to nobody. Called by the
    keeper, which has the right to (`scheduler.cluster.starting`)."""
    daemons = Daemons(run_dir, fork)
    if lifeline is not None:
        daemons.bind(lifeline)
    try:
        daemons.start(nodes, slots, faults=faults)
    except BaseException:
        daemons.terminate()
        daemons.reap(time.monotonic() + STOP_GRACE_SECS)
        raise
    return daemons


def adopt_cluster(run_dir: RunDir, nodes: int, slots: int, lifeline: int | None, *, faults: bool = True) -> Daemons:
    """Take over a cluster whose keeper is dead. Called by the next keeper, which holds the keeper's lock."""
    daemons = Daemons(run_dir, fork)
    if lifeline is not None:
        daemons.bind(lifeline)
    daemons.adopt(nodes, slots, faults=faults)
    return daemons


def stop_cluster(run_dir: RunDir, drain_secs: float, on_wait: Callable[[], bool | None] | None = None) -> Stopped:
    """Drain for at most `drain_secs`, then end everything. `on_wait`: True means, do not drain any longer."""
    if not (math.isfinite(drain_secs) and drain_secs >= 0):
        raise UsageError(f"the wait is {drain_secs}, allowed is a number of seconds from 0 up")
    if not _await_kept_nimbus(run_dir):
        return Stopped(killed=_end_processes(run_dir))
    try:
        _await_going_nimbus(run_dir)
        pending = _stop_by_nimbus(run_dir, drain_secs, on_wait)
    except (NoAnswer, NotEnded):
        # It holds its directory, but is stopped, or hangs.
        return Stopped(killed=_end_processes(run_dir), is_silent=True)
    # A forking parent ends a moment after its supervisor.
    _await_none(run_dir, _STOP_MARGIN_SECS)
    return Stopped(pending, _end_processes(run_dir))


def _stop_by_nimbus(
    run_dir: RunDir, drain_secs: float, on_wait: Callable[[], bool | None] | None
) -> dict[str, Unfinished]:
    """As `Stopped.pending`. NoAnswer or NotEnded if Nimbus does nothing."""
    with NimbusClient(run_dir, timeout_secs=ANSWER_SECS, patience_secs=AWAY_PATIENCE_SECS) as client:
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
            return {job.name: view.unfinished() for job, view in views}
        finally:
            for job in jobs:
                job.close()


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


def _await_going_nimbus(run_dir: RunDir) -> None:
    """NoAnswer if Nimbus is stopped, by its process's state, and stays so."""
    deadline = time.monotonic() + STOPPED_SECS
    while any(is_stopped(process.pid) for process in processes_of(run_dir) if runs(process, NIMBUS)):
        if time.monotonic() >= deadline:
            raise NoAnswer(f"Nimbus (pid {run_dir.lock_holder()}) is stopped")
        time.sleep(_POLL_SECS)


def _end_processes(run_dir: RunDir) -> int:
    """End what runs without a Nimbus: politely, because supervisors stop their workers, then by force. How many."""
    _end_keeper(run_dir)
    found = processes_of(run_dir)
    # Nimbus too: one whose directory is gone, or whose key, may still run, and would be waited for in vain.
    daemons = [process for process in found if runs(process, SUPERVISOR) or runs(process, NIMBUS)]
    for process in daemons:
        signal_marked(process, run_dir, signal.SIGTERM)
    for process in found:
        # One that was stopped hears nothing until it goes on.
        signal_marked(process, run_dir, signal.SIGCONT)
    if daemons:
        _await_none(run_dir, STOP_GRACE_SECS + _STOP_MARGIN_SECS)
    for process in processes_of(run_dir):
        signal_marked(process, run_dir, signal.SIGKILL)
    left = _await_none(run_dir, _STOP_MARGIN_SECS)
    if left:
        raise ClusterError(f"processes {', '.join(str(process.pid) for process in left)} do not end")
    run_dir.remove_sockets()
    return len(found)


def _end_keeper(run_dir: RunDir) -> None:
    """First, or it would start again what is being ended. One that is killed is there for a moment yet."""
    # Before it is killed: a daemon that sees its end would start the next.
    end_record(run_dir.keeper_record, 0)
    deadline = time.monotonic() + _STOP_MARGIN_SECS
    while keepers := [process for process in processes_of(run_dir) if runs(process, KEEPER)]:
        for process in keepers:
            signal_marked(process, run_dir, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return
        time.sleep(_POLL_SECS)


def end_lost(run_dir: RunDir) -> int:
    """End the processes of a cluster whose run directory was removed, or cannot be used. How many there were."""
    return _end_processes(run_dir)


def _await_none(run_dir: RunDir, secs: float) -> list[psutil.Process]:
    """Wait until no process of the cluster is left; those that are after `secs`."""
    deadline = time.monotonic() + secs
    while (left := processes_of(run_dir)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECS)
    return left
