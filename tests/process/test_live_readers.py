"""Two topologies read one inlet: the second one is refused in one line, until the first one is gone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.inlet_lab import put
from tests.process.cli import squall, start
from tests.process.waiting import wait_for

pytest.importorskip("pyarrow")

FILE = """
from squall import BasicBolt, LiveSpout, TopologyBuilder

class Writes(BasicBolt):
    def __init__(self, out):
        self.out = out

    def execute(self, tup, collector):
        with open(self.out, "a") as file:
            file.write(f"{tup[0]}\\n")

def topology(args):
    inlet, out = args
    builder = TopologyBuilder()
    builder.set_spout("rows", LiveSpout(inlet, ["n"]), parallelism=2)
    builder.set_bolt("writes", Writes(out)).shuffle_grouping("rows")
    return builder.build()
"""


def test_a_second_topology_is_refused_and_takes_over_after_a_kill(tmp_path: Path) -> None:
    program, inlet = tmp_path / "reads.py", tmp_path / "inlet"
    program.write_text(FILE)

    def line(out: str) -> tuple[str | Path, ...]:
        return ("run", program, "--local", "--quiet", "--", inlet, tmp_path / out)

    def seen(out: str, rows: range) -> bool:
        path = tmp_path / out
        return path.exists() and sorted(map(int, path.read_text().split())) == list(rows)

    put(inlet, 0, range(30))
    first = start(*line("first"))
    try:
        wait_for("the rows", lambda: seen("first", range(30)))
        second = squall(*line("second"))
        assert second.returncode == 1
        [said] = second.stderr.splitlines()
        assert f"inlet {inlet} is read by 'rows' of topology 'reads' already" in said
    finally:
        first.kill()
        first.communicate()
    put(inlet, 1, range(30, 50))
    third = start(*line("third"))
    try:
        # The first one may have been killed before it stored what was acked.
        wait_for("the other rows", lambda: seen("third", range(30, 50)) or seen("third", range(50)))
        os.kill(third.pid, signal.SIGINT)
        third.communicate(timeout=40)
    finally:
        third.kill()
        third.communicate()
    # Who ends in order is not waited for, and leaves nothing.
    assert (inlet / "_reader").read_bytes() == b""
