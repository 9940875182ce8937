"""A store that was damaged under a running cluster: everybody is told, and nothing that runs is stopped."""

from __future__ import annotations

import os

import psutil
import pytest

from squall.engine.errors import ClusterError
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.nimbus.store import STORE_FILES, Store
from tests.process.cli import running
from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for


def test_a_damaged_store_stops_nothing(cluster: Standing) -> None:
    cluster.up(slots=2)
    cluster.ok("submit", ENDLESS, "--name", "one")
    wait_for("acks", lambda: cluster.described("one").acked > 0)
    (worker,) = [psutil.Process(row.pid) for row in cluster.described("one").workers]
    there = sorted(os.listdir(cluster.run_dir.boards)), sorted(os.listdir(cluster.run_dir.code))
    killed = cluster.nimbus()
    cluster.lose_keeper()
    killed.kill()
    killed.wait(60)
    whole = {name: (cluster.path / name).read_bytes() for name in STORE_FILES if (cluster.path / name).exists()}
    for name, data in whole.items():
        (cluster.path / name).write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))

    assert "nimbus.db is damaged" in cluster.run("nimbus").stderr
    with pytest.raises(ClusterError, match=r"is away, .*`squall nimbus --dir .*` starts it again"):
        NimbusClient(cluster.run_dir, patience_secs=0.1)
    assert sorted(os.listdir(cluster.run_dir.boards)) == there[0]
    for name in whole:
        (cluster.path / name).unlink(missing_ok=True)
    Store(cluster.run_dir.nimbus_db).close()  # an operator's copy, from before the topology
    with running("nimbus", SQUALL_DIR=str(cluster.path)):
        # On a busy machine its start takes longer than commands wait for a Nimbus that is away.
        wait_for("Nimbus", cluster.run_dir.lock_holder)
        # A Nimbus that knows nothing: the worker stays until an operator says otherwise.
        wait_for("the node", lambda: cluster.json("status")["nodes"])
        listed = cluster.run("list")
        assert (listed.returncode, listed.stdout) == (1, "no topologies\n")
        assert "unknown: one-1-" in listed.stderr
        assert cluster.json("status")["free_slots"] == ["node-1:6701"]
        assert worker.is_running()
        assert (sorted(os.listdir(cluster.run_dir.boards)), sorted(os.listdir(cluster.run_dir.code))) == there
        (gone,) = cluster.json("kill", "--unknown")["unknown"]
        assert gone.startswith("one-1-")
        wait_for("the worker's end", lambda: not worker.is_running())
        assert os.listdir(cluster.run_dir.boards) == []
        assert cluster.ok("list") == "no topologies\n"
        wait_for("both slots", lambda: len(cluster.json("status")["free_slots"]) == 2)
