"""The JSON of commands is as its schema says. That of run, chaos and verify is checked where those are tested."""

from __future__ import annotations

import os
import signal

from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for
from tests.schemas import mistakes


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
