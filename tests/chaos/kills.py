"""Runs a topology to its end while its workers are killed, one after the other."""

from __future__ import annotations

from squall import ClusterError, Config, Job, LocalCluster, Topology
from tests.process.conftest import SharedCluster
from tests.process.waiting import wait_for

TEXTS, KILLS = 900, 2


def killed(cluster: LocalCluster, worker: str) -> bool:
    """Kill a worker; return False if it is dead still."""
    try:
        cluster.inject("kill", worker)
    except ClusterError:
        return False
    return True


def has_restarted(job: Job, times: int) -> bool:
    restarts = job.stats().restarts
    return len(restarts) == times and all(one.ready_after_secs is not None for one in restarts)


def run_with_kills(cluster: SharedCluster, topology: Topology, messages: int, seed: int) -> Job:
    """Run a topology to its end, while its workers are killed in turn; the seed says which one first."""
    job = cluster.submit("exact", topology, Config(workers=2))
    workers = [str(slot) for slot in job.topology_state().assignment.workers]
    for kill in range(1, KILLS + 1):
        enough = messages * kill // (KILLS + 2)
        wait_for(f"{enough} acks", lambda enough=enough: job.stats().acked >= enough)
        victim = workers[(seed + kill) % 2]
        wait_for("a worker to kill", lambda victim=victim: killed(cluster, victim))
        # Two deaths of one worker before it is back count as one.
        wait_for("its successor", lambda kill=kill: has_restarted(job, kill))
    report = job.wait_until_drained(timeout=100)
    assert len(report.restarts) == KILLS
    assert report.dead_letters == 0
    return job
