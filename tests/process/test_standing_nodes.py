"""Nodes that go and come: what they ran goes elsewhere and comes back, and every count is exact."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.standing_tools import ENDLESS, Standing, directory
from tests.process.waiting import wait_for


@pytest.fixture
def cluster() -> Iterator[Standing]:
    with directory() as made:
        yield made


def slots(cluster: Standing, name: str) -> list[str]:
    return [row["worker"] for row in cluster.described(name)["workers"] if row["state"] == "ready"]


@pytest.mark.nightly
def test_up_with_fewer_nodes_than_before(cluster: Standing) -> None:
    cluster.up(nodes=2, slots=1)
    cluster.ok("submit", ENDLESS, "--name", "one", "--workers", "2")
    wait_for("both workers", lambda: len(slots(cluster, "one")) == 2)
    cluster.ok("down")
    cluster.up(nodes=1, slots=1)
    wait_for("all on one node", lambda: len(cluster.described("one")["workers"]) == 1)
    wait_for("acks", lambda: cluster.described("one")["rates"]["acked_per_sec"] > 0)
    assert "1 of 2 workers" in cluster.ok("status", "one")
