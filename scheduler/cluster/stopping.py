"""Stops clusters.

Guarantees
    * A stop drains first: it stops the spouts and waits until nothing is pending, or for the limit. Topologies are
      kept, and go on when a cluster is started in the directory again.
    * Several stops at once all return when the cluster has ended; the least patient one limits the drain.
    * A cluster whose Nimbus is gone, is stopped or hangs can be stopped as well, without a drain. A Nimbus that is
      being restarted is waited for.

Relies on: `ipc.rundir` for the lock that Nimbus holds.
Thread: the caller's.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field

from squall.engine.errors import ClusterError, UsageError
from squall.engine.report.metrics import Unfinished
from squall.ipc.control import NoAnswer
from squall.ipc.rundir import RunDir
from squall.scheduler.client.job import Job
from squall.scheduler.client.nimbus_client import (
    AWAY_PATIENCE_SECS,
    TIMEOUT_SECS,
    Interrupted,
    NimbusAway,
    NimbusClient,
    NoCluster,
    NotEnded,
    OnWait,
)
from squall.scheduler.common.messages import TopologyRecord
from squall.scheduler.common.role import STOP_GRACE_SECS, STOP_MARGIN_SECS, RoleKind, await_none, end_lost, processes_of
from squall.scheduler.records.topology_view import TopologyView

ANSWER_SECS = TIMEOUT_SECS
"""Longest wait of a stop for Nimbus's answer before it takes Nimbus for hung."""


@dataclass(frozen=True)
class StoppedCluster:
    """The outcome of a stop."""

    pending: dict[str, Unfinished] = field(default_factory=dict)
    """Per topology: messages that were neither acked nor failed when its workers ended, those held for a retry, and
    untracked tuples that were not executed."""
    killed: int = 0
    """The number of processes that had to be ended without Nimbus."""
    is_silent: bool = False
    """Whether that was because Nimbus was there, but did not answer or end."""
    by_nimbus: bool = True
    """Whether Nimbus stopped the cluster, after the drain or at its limit. Otherwise nothing was drained."""


def stop_cluster(
    run_dir: RunDir, drain_secs: float, on_wait: OnWait = None
) -> StoppedCluster:
    """Drain for at most `drain_secs`, then end the cluster. When `on_wait` returns True, the drain ends early."""
    if not (math.isfinite(drain_secs) and drain_secs >= 0):
        raise UsageError(f"the wait is {drain_secs}; allowed: a number of seconds from 0 up")
    if run_dir.lock_holder() is None and not processes_of(run_dir, RoleKind.KEEPER):
        return _end_without_nimbus(run_dir)
    try:
        pending = _stop_by_nimbus(run_dir, drain_secs, on_wait)
    except (NoAnswer, NotEnded, NoCluster, NimbusAway):
        if run_dir.lock_holder() is None:
            # It died, or another command has stopped the cluster.
            return _end_without_nimbus(run_dir)
        # Nimbus holds its directory, but is stopped or hangs.
        return StoppedCluster(killed=end_lost(run_dir), is_silent=True, by_nimbus=False)
    # Nimbus has waited for the supervisors that it knew: one that is left had not registered with it yet.
    if not processes_of(run_dir, RoleKind.SUPERVISOR):
        # A forking parent ends a moment after its supervisor.
        await_none(run_dir, STOP_MARGIN_SECS)
    return StoppedCluster(pending, end_lost(run_dir))


def _end_without_nimbus(run_dir: RunDir) -> StoppedCluster:
    """End what is left; nothing may be, or processes that another command's stop is just ending."""
    is_led = bool(processes_of(run_dir, RoleKind.SUPERVISOR, RoleKind.WORKER))
    if not is_led and not await_none(run_dir, STOP_MARGIN_SECS):
        return StoppedCluster()
    return StoppedCluster(killed=end_lost(run_dir), by_nimbus=False)


def _stop_by_nimbus(
    run_dir: RunDir, drain_secs: float, on_wait: OnWait
) -> dict[str, Unfinished]:
    """Stop the cluster through Nimbus. Returns what is `pending`. NoAnswer or NotEnded if Nimbus does nothing."""
    with (
        NimbusClient(run_dir, timeout_secs=ANSWER_SECS, patience_secs=AWAY_PATIENCE_SECS) as client,
        contextlib.ExitStack() as opened,
    ):
        views: dict[str, TopologyView | None] = {}
        for record in _topologies(client):
            job = opened.enter_context(contextlib.closing(Job(client, record)))
            with contextlib.suppress(UsageError, ClusterError):  # it was removed meanwhile
                # None if it waits for a slot.
                views[job.name] = job.view()
        client.shutdown(STOP_GRACE_SECS, drain_secs)
        try:
            client.await_end(drain_secs + STOP_GRACE_SECS + STOP_MARGIN_SECS, on_wait)
        except Interrupted:
            client.shutdown(0.0)
            client.await_end(STOP_MARGIN_SECS)
        return {name: Unfinished(0) if view is None else view.unfinished() for name, view in views.items()}


def _topologies(client: NimbusClient) -> list[TopologyRecord]:
    """Those in the cluster; none if it is about to end: then who has stopped it tells what is pending."""
    try:
        return client.get_cluster().topologies
    except (NoAnswer, NoCluster, NimbusAway):
        raise
    except ClusterError:
        return []
