"""Runs a topology with an end on a cluster of its own, and times it from activation to drained."""

from __future__ import annotations

import time

from squall import Config, LocalCluster, RunReport, Topology


def run_until_drained(topology: Topology, config: Config, timeout_secs: float = 300.0) -> tuple[float, RunReport]:
    """Seconds from activation to drained, and the report. SystemExit if a message was not acked at once."""
    with LocalCluster(slots_per_node=config.workers) as cluster:
        job = cluster.submit("bench", topology, config, active=False)
        job.wait_until_ready(timeout=60)
        began = time.perf_counter()
        job.activate()
        report = job.wait_until_drained(timeout=timeout_secs)
        secs = time.perf_counter() - began
    if report.acked != report.emitted or report.failed:
        raise SystemExit(f"not a valid run: {report.to_json()}")
    return secs, report
