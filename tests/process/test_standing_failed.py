"""A worker that dies whatever one does: its slot is given up, its work moves, an operator can have it tried again."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen

from tests.process.cli import running
from tests.process.history_check import broken_rules
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for

MAX_DEATHS = 4
CRASHING = """
import ctypes, os
from squall import BasicBolt, TopologyBuilder
from tests.process.standing_topologies import Numbers

class Crashes(BasicBolt):
    def execute(self, tup, collector):
        if os.path.exists({bad!r}):
            ctypes.string_at(0)

builder = TopologyBuilder()
builder.set_spout("numbers", Numbers())
builder.set_bolt("crashes", Crashes()).shuffle_grouping("numbers")
topology = builder.build()
"""


def supervisor(cluster: Standing, node: str) -> AbstractContextManager[Popen[str]]:
    limits = "--slots", "1", "--max-deaths", str(MAX_DEATHS)
    return running("supervisor", "--node", node, *limits, SQUALL_DIR=str(cluster.path))


def test_a_slot_is_given_up_its_work_moves_and_a_reset_tries_again(cluster: Standing, tmp_path: Path) -> None:
    with running("nimbus", SQUALL_DIR=str(cluster.path)):
        wait_for("the directory", cluster.run_dir.nimbus_socket.exists)
        with supervisor(cluster, "node-1"):
            see_it(cluster, tmp_path)
            assert broken_rules(cluster.run_dir) == []


def see_it(cluster: Standing, tmp_path: Path) -> None:
    bad, program = tmp_path / "bad", tmp_path / "crashing.py"
    bad.touch()
    program.write_text(CRASHING.format(bad=str(bad)))
    wait_for("the node", lambda: cluster.json("status")["free_slots"])
    cluster.ok("submit", program, "--name", "x", "--set", "max_crashes=none")
    wait_for("the slot to be given up", lambda: cluster.described("x").given_up == ["node-1:6700"])
    found = cluster.described("x")
    assert [(row.worker, row.state) for row in found.workers] == [("node-1:6700", "FAILED")]
    assert sum(death.times for death in found.deaths) == MAX_DEATHS + 1
    assert "killed by SIGSEGV" in {death.reason for death in found.deaths}
    assert "Fatal Python error: Segmentation fault" in {death.error for death in found.deaths}
    assert any(death.rss_bytes > 1 << 20 for death in found.deaths)
    text = cluster.ok("status", "x")
    assert "FAILED" in text
    assert f"0 of 1 worker, {MAX_DEATHS + 1} restarts" in text
    [row] = cluster.json("list")["topologies"]
    assert (row["workers"], row["workers_ready"], row["restarts"]) == (1, 0, MAX_DEATHS + 1)
    assert " 0/1 " in cluster.ok("list")
    assert "given up: node-1:6700; `squall reset x` tries again" in text
    assert "MiB: Fatal Python error: Segmentation fault" in text

    with supervisor(cluster, "node-2"):
        wait_for("the move", lambda: [w.worker for w in cluster.described("x").workers] == ["node-2:6700"])
        wait_for("both to be given up", lambda: len(cluster.described("x").given_up) == 2)
        bad.unlink()
        assert cluster.described("x").workers[0].state == "FAILED"
        assert cluster.ok("reset", "x") == "x is reset: node-1:6700, node-2:6700 may be used again\n"
        wait_for("acks", lambda: cluster.described("x").acked > 0)
        assert cluster.described("x").given_up == []
        assert cluster.ok("reset", "x") == "x is reset: no slot had given it up\n"
        assert cluster.json("kill", "x")["pending"] == 0
    assert cluster.refused(2, "reset", "x") == "there is no topology named 'x'; running: none"
