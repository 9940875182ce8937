"""Runs a topology to its end while its workers are killed, one after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from squall import ClusterError, Config, Job, LocalCluster, Topology
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


@contextlib.contextmanager
def run_with_kills(
    topology: Topology, messages: int, seed: int, before_kill: Callable[[int], object] = lambda _: None
) -> Iterator[Job]:
    """Run a topology to its end, while its workers are killed in turn; the seed says which one first."""
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job = cluster.submit("exact", topology, Config(workers=2))
        for kill in range(1, KILLS + 1):
            enough = messages * kill // (KILLS + 2)
            wait_for(f"{enough} acks", lambda enough=enough: job.stats().acked >= enough)
            before_kill(kill)
            victim = f"node-1:{6700 + (seed + kill) % 2}"
            wait_for("a worker to kill", lambda victim=victim: killed(cluster, victim))
            # Two deaths of one worker before it is back count as one.
            wait_for("its successor", lambda kill=kill: has_restarted(job, kill))
        report = job.wait_until_drained(timeout=100)
        assert len(report.restarts) == KILLS
        assert report.dead_letters == 0
        yield job
