"""All workers of a cluster hash text alike, whichever process started them, and after whatever death."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for

SAYS_ITS_HASH = """
import os
from squall import BasicBolt, Spout, TopologyBuilder

class Idle(Spout):
    outputs = ("n",)
    def next_tuple(self):
        pass

class Says(BasicBolt):
    def __init__(self, path):
        self.path = path
    def prepare(self, conf, context):
        with open(self.path, "a") as file:
            file.write(f"{context.worker} {os.getpid()} {hash('squall')}\\n")
    def execute(self, tup, collector):
        pass

def topology(args):
    builder = TopologyBuilder()
    builder.set_spout("idle", Idle())
    builder.set_bolt("says", Says(args[0]), parallelism=2).fields_grouping("idle", "n")
    return builder.build()
"""


def test_every_worker_hashes_text_alike(cluster: Standing, tmp_path: Path) -> None:
    file, said = tmp_path / "says.py", tmp_path / "said"
    file.write_text(SAYS_ITS_HASH)

    def lines() -> list[list[str]]:
        return [line.split() for line in said.read_text().splitlines()] if said.exists() else []

    def await_lines(count: int) -> None:
        wait_for(f"{count} workers", lambda: len(lines()) >= count)

    cluster.ok("up", "--detach", "--nodes", "2", "--slots", "1")
    cluster.ok("submit", file, "--name", "says", "--workers", "2", "--", said)
    await_lines(2)
    os.kill(int(lines()[0][1]), signal.SIGKILL)
    await_lines(3)
    # The next one is executed by a supervisor that has a ZeroMQ context, not forked from it.
    cluster.ok("inject", "kill", "forking-parent", "node-1")
    os.kill(next(int(pid) for worker, pid, _ in reversed(lines()) if worker.startswith("node-1")), signal.SIGKILL)
    await_lines(4)
    cluster.ok("inject", "kill", "supervisor", "node-2")
    os.kill(next(int(pid) for worker, pid, _ in reversed(lines()) if worker.startswith("node-2")), signal.SIGKILL)
    await_lines(5)
    assert len({hashed for _, _, hashed in lines()}) == 1, lines()
