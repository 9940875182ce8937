"""`inject` right after a submit, or a rebalance: the worker or nobody is hit, never the caller's own process group."""

from __future__ import annotations

import os
import subprocess
import sys

from squall import LocalCluster, TopologyBuilder
from squall.engine.errors import ClusterError, UsageError
from squall.testing import FixedSpout
from tests.process.waiting import wait_for

REFUSALS = ("is not there now", "no worker")


def test_the_caller_is_not_hit() -> None:
    """In a session of its own, so that a signal to its group shows in its exit status and nowhere else."""
    command = [sys.executable, "-m", "tests.process.test_inject"]
    caller = subprocess.run(command, start_new_session=True, capture_output=True, text=True, timeout=120, check=False)
    assert caller.returncode == 0, caller.stderr
    assert "hit or refused 6 times" in caller.stdout


def _inject_early() -> None:
    builder = TopologyBuilder()
    builder.set_spout("spout", FixedSpout(("n",), [[n] for n in range(10)]))
    topology = builder.build()
    tries = 0
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        for number in range(2):
            job = cluster.submit(f"early-{number}", topology)
            _inject(cluster)
            job.wait_until_ready(120)
            # What is ready may be the killed one, whose death is not known yet.
            wait_for("a worker that can be stopped", lambda: _inject(cluster, "stop"))
            cluster.heal("node-1:6700")
            job.rebalance(workers=2, wait_secs=0)
            _inject(cluster)
            job.kill(0.0)
            _inject(cluster)
            tries += 3
    assert os.getpgrp() == os.getpid()
    print(f"hit or refused {tries} times")


def _inject(cluster: LocalCluster, kind: str = "kill") -> bool:
    """Whether somebody was hit."""
    try:
        cluster.inject(kind, "node-1:6700")
    except (ClusterError, UsageError) as error:
        if not any(refusal in str(error) for refusal in REFUSALS):
            raise
        return False
    return True


if __name__ == "__main__":
    _inject_early()
