"""Nodes that go and come: what they ran goes elsewhere and comes back, and every count is exact."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.process.standing_tools import ENDLESS, Standing, directory
from tests.process.test_examples import read_counts
from tests.process.waiting import wait_for


@pytest.fixture
def cluster() -> Iterator[Standing]:
    with directory() as made:
        yield made


def slots(cluster: Standing, name: str) -> list[str]:
    return [row["worker"] for row in cluster.described(name)["workers"] if row["state"] == "ready"]


@pytest.mark.slow
def test_a_lost_node_and_its_return(cluster: Standing, tmp_path: Path) -> None:
    text, out = tmp_path / "some.txt", tmp_path / "result"
    text.write_text("".join(f"w{n % 97} same w{n % 7}\n" for n in range(20_000)))
    cluster.up(nodes=2, slots=1)
    cluster.ok("submit", "examples/word_count.py", "--name", "count", "--workers", "2", "--", text, "--out", out)
    wait_for("both workers", lambda: slots(cluster, "count") == ["node-1:6700", "node-2:6700"])
    lost = cluster.described("count")["workers"][1]["pid"]
    cluster.lose_keeper()
    cluster.supervisor("node-2").kill()
    os.kill(lost, signal.SIGKILL)
    wait_for("all on one node", lambda: len(cluster.described("count")["workers"]) == 1)
    # By the supervisor's own command, in place of the one that was killed.
    returned = psutil.Popen(
        [*psutil.Process().cmdline()[:1], "-m", "squall", "supervisor", "--node", "node-2", "--slots", "1"],
        env={**os.environ, "SQUALL_DIR": str(cluster.path), "PYTHONPATH": os.getcwd()}, stderr=-3,
    )
    try:
        wait_for("both workers again", lambda: len(slots(cluster, "count")) == 2)
        wait_for("the end", lambda: cluster.described("count")["drained"])
        assert cluster.json("kill", "count", "-w", "20")["pending"] == 0
        assert read_counts(out) == Counter(text.read_text().split())
        cluster.ok("down")
        assert returned.wait(60) == 0
    finally:
        if returned.is_running():
            returned.kill()
            returned.wait()


@pytest.mark.slow
def test_up_with_fewer_nodes_than_before(cluster: Standing) -> None:
    cluster.up(nodes=2, slots=1)
    cluster.ok("submit", ENDLESS, "--name", "one", "--workers", "2")
    wait_for("both workers", lambda: len(slots(cluster, "one")) == 2)
    cluster.ok("down")
    cluster.up(nodes=1, slots=1)
    wait_for("all on one node", lambda: len(cluster.described("one")["workers"]) == 1)
    wait_for("acks", lambda: cluster.described("one")["rates"]["acked_per_sec"] > 0)
    assert "1 of 2 workers" in cluster.ok("status", "one")
