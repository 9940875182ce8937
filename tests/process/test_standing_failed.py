"""A worker that dies whatever one does: its slot is given up, its work moves, an operator can have it tried again."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.cli import start
from tests.process.history_check import broken_rules
from tests.process.standing_tools import Standing, directory
from tests.process.waiting import wait_for

MAX_DEATHS = 4


@pytest.fixture
def cluster() -> Iterator[Standing]:
    with directory() as made, daemon(made, "nimbus"):
        wait_for("Nimbus", lambda: made.path.exists() and made.run_dir.lock_holder())
        with supervisor(made, "node-1"):
            yield made
            assert broken_rules(made.run_dir) == []


def supervisor(cluster: Standing, node: str) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    return daemon(cluster, "supervisor", "--node", node, "--slots", "1", "--max-deaths", str(MAX_DEATHS))


@contextlib.contextmanager
def daemon(cluster: Standing, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with start(*arguments, SQUALL_DIR=str(cluster.path)) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=100)


def crashing(path: Path) -> Path:
    """A topology whose bolt crashes while the file `path / "bad"` is there."""
    (path / "bad").touch()
    program = path / "crashing.py"
    program.write_text(
        "import ctypes, os\n"
        "from squall import BasicBolt, TopologyBuilder\n"
        "from tests.process.standing_topologies import Numbers\n"
        "class Crashes(BasicBolt):\n"
        "    def execute(self, tup, collector):\n"
        f"        if os.path.exists({str(path / 'bad')!r}):\n"
        "            ctypes.string_at(0)\n"
        "builder = TopologyBuilder()\n"
        "builder.set_spout('numbers', Numbers())\n"
        "builder.set_bolt('crashes', Crashes()).shuffle_grouping('numbers')\n"
        "topology = builder.build()\n"
    )
    return program


def test_a_slot_is_given_up_its_work_moves_and_a_reset_tries_again(cluster: Standing, tmp_path: Path) -> None:
    wait_for("the node", lambda: cluster.json("status")["free_slots"])
    cluster.ok("submit", crashing(tmp_path), "--name", "x", "--set", "max_crashes=none")
    wait_for("the slot to be given up", lambda: cluster.described("x")["given_up"] == ["node-1:6700"])
    found = cluster.described("x")
    assert [(row["worker"], row["state"]) for row in found["workers"]] == [("node-1:6700", "FAILED")]
    assert sum(death["times"] for death in found["deaths"]) == MAX_DEATHS + 1
    assert "killed by SIGSEGV" in {death["reason"] for death in found["deaths"]}
    assert "Fatal Python error: Segmentation fault" in {death["error"] for death in found["deaths"]}
    assert any(death["rss_bytes"] > 1 << 20 for death in found["deaths"])
    text = cluster.ok("status", "x")
    assert "FAILED" in text
    assert f"0 of 1 worker, {MAX_DEATHS + 1} restarts" in text
    [row] = cluster.json("list")["topologies"]
    assert (row["workers"], row["workers_ready"], row["restarts"]) == (1, 0, MAX_DEATHS + 1)
    assert " 0/1 " in cluster.ok("list")
    assert "given up: node-1:6700; `squall reset x` tries again" in text
    assert "MiB: Fatal Python error: Segmentation fault" in text

    with supervisor(cluster, "node-2"):
        wait_for("the move", lambda: [w["worker"] for w in cluster.described("x")["workers"]] == ["node-2:6700"])
        wait_for("both to be given up", lambda: len(cluster.described("x")["given_up"]) == 2)
        (tmp_path / "bad").unlink()
        assert cluster.described("x")["workers"][0]["state"] == "FAILED"
        assert cluster.ok("reset", "x") == "x is reset: node-1:6700, node-2:6700 may be used again\n"
        wait_for("acks", lambda: cluster.described("x")["acked"] > 0)
        assert cluster.described("x")["given_up"] == []
        assert cluster.ok("reset", "x") == "x is reset: no slot had given it up\n"
        assert cluster.json("kill", "x")["pending"] == 0
    assert cluster.refused(2, "reset", "x") == "there is no topology named 'x'; running: none"
