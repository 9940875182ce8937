"""The JSON of commands is as its schema says. That of chaos and verify is checked where those are tested."""

from __future__ import annotations

import copy
import json
import os
import signal
from pathlib import Path
from typing import Any

from tests.process.cli import squall
from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for
from tests.schemas import mistakes

FAILS = """
from squall import BasicBolt, FailedTuple, ReplayingSpout, TopologyBuilder

class Numbers(ReplayingSpout):
    outputs = ("n",)
    def read(self):
        for n in range(200):
            yield n, (n,)

class Fails(BasicBolt):
    def prepare(self, conf, context):
        context.counter("seen")
        context.histogram("size")
        context.gauge("level", lambda: float("nan"))
    def execute(self, tup, collector):
        if tup["n"] == 77:
            raise FailedTuple("\\x1b[31mno")

builder = TopologyBuilder()
builder.set_spout("numbers", Numbers())
builder.set_bolt("fails", Fails(), 2).shuffle_grouping("numbers")
topology = builder.build()
"""


def test_run(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    done = squall(
        "run", tmp_path / "fails.py", "--json", "--quiet", "--set", "max_attempts=2", "--workers", "2",
        "--fault", "kill worker fails[0] at 0s",
    )
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    assert mistakes(document) == []
    assert (document["schema"], document["version"], document["dead_letters"]) == ("squall/run", 1, 1)
    assert document["failures"]
    assert document["metrics"]
    assert document["restarts"]


def test_a_standing_cluster(standing: Standing) -> None:
    standing.ok("submit", ENDLESS, "--name", "words", "--workers", "4")
    standing.ok("submit", ENDLESS, "--name", "waits")
    wait_for("acks", lambda: standing.described("words")["acked"] > 0)
    os.kill(standing.described("words")["workers"][0]["pid"], signal.SIGKILL)
    wait_for("the death", lambda: standing.described("words")["deaths"])
    standing.ok("inject", "slow", "words/nothing", "ms=1", "--for", "20s")
    asked = {"status words": "status", "status waits": "status", "status": "cluster", "list": "list", "ps": "ps"}
    for command, name in asked.items():
        document = standing.json(*command.split())
        assert (document["schema"], document["version"]) == (f"squall/{name}", 1)
        assert mistakes(document) == []
    assert standing.json("status", "words")["faults"]


def test_the_check_finds_mistakes() -> None:
    good: dict[str, Any] = {"schema": "squall/list", "version": 1, "topologies": [{
        "name": "a", "id": "a-1", "status": "ACTIVE", "tasks": 1, "executors": 1, "workers": 1, "workers_ready": 1,
        "workers_wanted": 1, "restarts": 0, "uptime_secs": 1.5, "replaced_by": None,
    }]}  # fmt: skip
    assert mistakes(good) == []
    more, less, other, later = (copy.deepcopy(good) for _ in range(4))
    more["topologies"][0]["pid"] = 1
    del less["topologies"][0]["id"]
    other["topologies"][0]["tasks"] = "1"
    later["version"] = 2
    for bad in (more, less, other, later):
        assert len(mistakes(bad)) == 1
