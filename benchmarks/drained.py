"""Runs a topology with an end, and times it from activation to drained; alone on its cluster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from squall import Config, Job, LocalCluster, RunReport, Topology

_READY_SECS = 60.0


def run_until_drained(
    topology: Topology, config: Config, timeout_secs: float = 300.0, cluster: LocalCluster | None = None,
    around: Callable[[Job], AbstractContextManager[object]] = lambda job: nullcontext(),
) -> tuple[float, RunReport]:
    """Seconds from activation to drained, and the report. SystemExit if a message was not acked at once.

    On a cluster with nothing else to do, which is left so, or on one of its own: to start and stop one takes as long as
    a short run. `around`: what is done to it meanwhile."""
    with contextlib.ExitStack() as ends:
        used = cluster or ends.enter_context(LocalCluster(slots_per_node=config.workers))
        job = used.submit("bench", topology, config, active=False, fresh=True)
        ends.callback(job.kill, 0.0)
        job.wait_until_ready(timeout=_READY_SECS)
        ends.enter_context(around(job))
        began = time.perf_counter()
        job.activate()
        report = job.wait_until_drained(timeout=timeout_secs)
        secs = time.perf_counter() - began
    if report.acked != report.emitted or report.failed:
        raise SystemExit(f"not a valid run: {report.to_json()}")
    return secs, report
