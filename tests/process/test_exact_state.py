"""State that counts each record once, with workers that are killed: exactly right, whatever the components are."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from squall import ClusterError, Config, LocalCluster, Topology
from tests.process import state_parts as parts
from tests.process.waiting import wait_for

TEXTS, KILLS = 1500, 4


def by_rows() -> Topology:
    return parts.topology(parts.Texts(TEXTS), parts.Split(), parts.Count())


def by_batches() -> Topology:
    return parts.topology(parts.BatchedTexts(TEXTS), parts.SplitBatch(), parts.CountBatch())


def mixed() -> Topology:
    return parts.topology(parts.Texts(TEXTS, named=True), parts.SplitBatch(), parts.MoodyCount())


def acking_itself() -> Topology:
    return parts.topology(parts.Texts(TEXTS), parts.SplitItself(), parts.CountBatch())


def asynchronous() -> Topology:
    return parts.topology(parts.BatchedTexts(TEXTS), parts.SplitAsync(), parts.Count())


def copied() -> Topology:
    return parts.topology(parts.Texts(TEXTS), parts.Split(), parts.Count(), copies=["all"])


def killed(cluster: LocalCluster, worker: str) -> bool:
    """Kill a worker; return False if it is dead still."""
    try:
        cluster.inject("kill", worker)
    except ClusterError:
        return False
    return True


@pytest.mark.parametrize("make", [by_rows, by_batches, mixed, acking_itself, asynchronous, copied])
def test_each_record_counts_once(make: Callable[[], Topology], seed: int) -> None:
    rng = random.Random(seed)
    expected = parts.expected(TEXTS)
    if make is copied:
        expected += expected
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job = cluster.submit("counted", make(), Config(workers=2))
        for kill in range(1, KILLS + 1):
            enough = 2 * TEXTS * kill // (KILLS + 2)
            wait_for(f"{enough} acks", lambda enough=enough: job.stats().acked >= enough)
            wait_for("a worker to kill", lambda: killed(cluster, f"node-1:{6700 + rng.randrange(2)}"))
        report = job.wait_until_drained(timeout=100)
        counts, total = job.state("count"), job.state("total")
    assert len(report.restarts) == KILLS
    assert counts == expected
    assert Counter(total["totals"]) == expected
    assert report.dead_letters == 0
