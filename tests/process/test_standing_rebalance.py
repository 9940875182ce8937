"""A topology that moves to other workers while it runs: nothing is lost, every count comes out exact."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from examples.word_count import topology as word_count
from squall import ClusterError, Config
from tests.process.conftest import SharedCluster
from tests.process.standing_topologies import endless
from tests.process.waiting import wait_for
from tests.process.written import word_counts, written

LINES = [f"w{number % 97} w{number % 89} same w{number % 7}" for number in range(30_000)]


def test_words_are_counted_exactly_across_moves(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    text, out = tmp_path / "some.txt", tmp_path / "result"
    text.write_text("\n".join(LINES) + "\n")
    topology = word_count([str(text), "--out", str(out), "--parallelism", "2"])
    job = shared_cluster.submit("count", topology, Config(workers=1))
    job.wait_until_ready(timeout=60)
    for workers, parallelism in ((4, {}), (2, {"count": 1}), (3, {"count": 2, "split": 1})):
        before = job.stats()
        assert job.rebalance(workers, parallelism, wait_secs=20) == 0
        view = job.view()
        assert view is not None
        assert len(view.assignment.workers) == workers
        assert job.stats().acked >= before.acked
        executors = Counter(e.component for worker in view.assignment.executors for e in worker)
        assert {name: executors[name] for name in parallelism} == parallelism
        wait_for("more acks", lambda seen=before.acked: job.stats().acked > seen or job.is_drained())
    report = job.wait_until_drained(timeout=90)
    assert job.kill(5.0) == 0
    assert report.restarts == []
    assert report.timed_out == 0
    assert word_counts(out) == Counter(" ".join(LINES).split())
    lines = {(row["partition"], row["offset"]): row["words"] for row in written(out / "ledger")}
    assert lines == {(0, offset): 4 for offset in range(len(LINES))}


def test_a_job_of_a_topology_that_was_replaced_says_so(shared_cluster: SharedCluster) -> None:
    former = shared_cluster.submit("endless", endless(), Config(workers=1))
    former.wait_until_ready(timeout=60)
    shared_cluster.client.kill_topology("endless")
    shared_cluster.client.await_removed(former.id, 20.0)
    with pytest.raises(ClusterError, match=f"topology {former.id} is gone"):
        former.topology_state()
    shared_cluster.submit("endless", endless(), Config(workers=1)).wait_until_ready(timeout=60)
    with pytest.raises(ClusterError, match="is gone; 'endless' is now the name of another one"):
        former.topology_state()
