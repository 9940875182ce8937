"""`squall ps`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.standing_tools import ENDLESS, Standing, directory
from tests.process.waiting import wait_for

SHOW_CURSOR, HIDE_CURSOR = b"\x1b[?25h", b"\x1b[?25l"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Standing]:
    with directory() as made:
        made.up(nodes=1, slots=2)
        yield made


@pytest.fixture(autouse=True)
def words(cluster: Standing) -> Iterator[None]:
    cluster.ok("submit", ENDLESS, "--name", "words", "--workers", "2")
    # One of them may be at work before the other is there.
    wait_for("its workers", lambda: [w["state"] for w in cluster.described("words")["workers"]] == ["ready"] * 2)
    wait_for("acks", lambda: cluster.described("words")["acked"] > 0)
    yield
    if "words" in cluster.json("status")["topologies"]:
        cluster.ok("kill", "words", "-w", "0")


def pid_of(cluster: Standing, port: int) -> int:
    (row,) = [row for row in cluster.json("ps")["processes"] if row["port"] == port]
    found: int = row["pid"]
    return found


def test_ps_lists_every_process(cluster: Standing) -> None:
    def seen() -> list[tuple[str, str | None, int | None, str | None]]:
        return [(row["role"], row["node"], row["port"], row["topology"]) for row in cluster.json("ps")["processes"]]

    spare = ("spare", "node-1", None, "words")
    wait_for("the spare", lambda: spare in seen())
    assert seen() == [
        ("keeper", None, None, None), ("nimbus", None, None, None), ("supervisor", "node-1", None, None),
        ("forking parent", "node-1", None, None), ("worker", "node-1", 6700, "words"),
        ("worker", "node-1", 6701, "words"), spare,
    ]
    workers = {row["worker"]: row["pid"] for row in cluster.described("words")["workers"]}
    assert {port: pid_of(cluster, port) for port in (6700, 6701)} == {
        6700: workers["node-1:6700"], 6701: workers["node-1:6701"],
    }
    table = cluster.ok("ps")
    assert len(table.splitlines()) == 8
    assert str(workers["node-1:6700"]) in table
    with cluster.keeper_held():
        cluster.nimbus().kill()
        wait_for("its end", lambda: [role for role, *_ in seen()].count("nimbus") == 0)
    wait_for("the next one", lambda: [role for role, *_ in seen()].count("nimbus") == 1)
    with directory() as nothing:
        assert "there is no cluster at" in nothing.refused(2, "ps")
