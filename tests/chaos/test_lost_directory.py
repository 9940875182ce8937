"""A cluster whose run directory was removed, or has lost its key, can be ended."""

from __future__ import annotations

import shutil

import pytest

from squall.scheduler.common.role import processes_of
from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for


def submit(cluster: Standing) -> None:
    cluster.up(slots=1)
    # Processes are counted, and a spare comes later.
    cluster.ok("submit", ENDLESS, "--name", "one", "--set", "warm_spare=false")
    wait_for("acks", lambda: cluster.described("one").acked > 0)


def test_without_its_key_a_cluster_is_ended_and_goes_on(cluster: Standing) -> None:
    submit(cluster)
    count = len(processes_of(cluster.run_dir))
    cluster.run_dir.key_file.unlink()
    message = cluster.refused(2, "up", "--detach")
    assert message.startswith(f"{count} processes of a cluster still run whose directory {cluster.path} was removed")
    assert f"`squall down --dir {cluster.path}` ends them" in message
    # The keeper, which would start again what is ended, is not counted.
    assert f"{count - 1} processes of the cluster in {cluster.path} ended, undrained" in cluster.ok("down")
    assert processes_of(cluster.run_dir) == []
    assert "it has no file 'key'" in cluster.refused(2, "down")
    # Nobody runs with the old key: a new one is as good.
    cluster.up(slots=1)
    assert [row["name"] for row in cluster.json("list")["topologies"]] == ["one"]


@pytest.mark.parametrize("victims", [(), ("supervisor node-1", "nimbus")], ids=["with daemons", "alone"])
def test_processes_whose_directory_was_removed_end_by_themselves(cluster: Standing, victims: tuple[str, ...]) -> None:
    submit(cluster)
    if victims:
        cluster.lose_keeper()
        for victim in victims:
            cluster.ok("inject", "kill", victim)
        wait_for("the daemons' end", lambda: cluster.run_dir.lock_holder() is None)
    shutil.rmtree(cluster.path)
    wait_for("their end", lambda: not processes_of(cluster.run_dir))
    assert cluster.refused(2, "down").startswith(f"there is no cluster at {cluster.path}")


def test_down_ends_what_runs_in_a_removed_directory(cluster: Standing) -> None:
    cluster.up(slots=1)
    for process in processes_of(cluster.run_dir):
        # Or they would see by themselves what has happened.
        process.suspend()
    shutil.rmtree(cluster.path)
    assert cluster.json("down")["killed"] == 3
    assert processes_of(cluster.run_dir) == []
