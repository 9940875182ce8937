"""The JSON of commands is as its schema says. That of run, chaos and verify is checked where those are tested."""

from __future__ import annotations

import os
import signal

from squall import StreamBuilder, Topology, tumbling
from tests.process.standing_tools import ENDLESS, Standing
from tests.process.standing_topologies import Numbers
from tests.process.waiting import wait_for
from tests.schemas import mistakes


def test_a_standing_cluster(standing: Standing) -> None:
    standing.ok("submit", ENDLESS, "--name", "words", "--workers", "4")
    standing.ok("submit", ENDLESS, "--name", "waits")
    wait_for("acks", lambda: standing.described("words").acked > 0)
    os.kill(standing.described("words").workers[0].pid, signal.SIGKILL)
    wait_for("the death", lambda: standing.described("words").deaths)
    standing.ok("inject", "slow", "words/nothing", "ms=1", "--for", "20s")
    asked = {"status words": "status", "status waits": "status", "status": "cluster", "list": "list", "ps": "ps"}
    for command, name in asked.items():
        document = standing.json(*command.split())
        assert (document["schema"], document["version"]) == (f"squall/{name}", 1)
        assert mistakes(document) == []
    assert standing.json("status", "words")["faults"]


class Halves(Numbers):
    def next_tuple(self) -> None:
        self.n += 1
        self.collector.emit((self.n,), message_id=("a" if self.n > 1 else "b", self.n))


def halves() -> Topology:
    numbers = StreamBuilder().source("in", Halves()).key_by("n")
    return numbers.window(tumbling(secs=9, by="n")).count().to(print).build()


def test_what_event_time_waits_for(standing: Standing) -> None:
    standing.ok("submit", f"{__file__}:halves", "--name", "halves")
    wait_for("a record", lambda: "stands at 1970-01-01T00:00:01+00:00 for " in standing.ok("status", "halves"))
    assert "s: waits for in[4], partition 'b'\n" in standing.ok("status", "halves")
    assert mistakes(standing.json("status", "halves")) == []
