"""Wrong input: one clear line, the right exit code, no process left (the leak checks see to that)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.cli import squall

HEAD = """
import threading
from squall import BasicBolt, Bolt, Spout, TopologyBuilder

class One(Spout):
    outputs = ("a", "b")
    def open(self, conf, context, collector):
        self.collector, self.left = collector, 1
    def next_tuple(self):
        if self.left:
            self.left = 0
            self.collector.emit((1, 2), message_id="only")
        self.exhausted = not self.left

class Nothing(BasicBolt):
    def execute(self, tup, collector):
        pass

def build(spout, bolt):
    builder = TopologyBuilder()
    builder.set_spout("one", spout)
    builder.set_bolt("nothing", bolt).shuffle_grouping("one")
    return builder.build()
"""

CASES = {
    "unpicklable": (
        HEAD + "s = One()\ns.inner = {'lock': threading.Lock()}\ntopology = build(s, Nothing())\n", 2,
        "component 'one' cannot be sent to a worker: one.inner, a dict, cannot be pickled",
    ),
    "wrong number of values": (
        HEAD + "class Bad(One):\n    def next_tuple(self):\n        self.collector.emit((1, 2, 3), message_id=1)\n"
        "topology = build(Bad(), Nothing())\n", 1,
        "one[3] stream 'default' emitted 3 values (1, 2, 3), but its fields are (a, b)",
    ),
    "prepare raises": (
        HEAD + "class Bad(Nothing):\n    def prepare(self, conf, context):\n        raise OSError('no database')\n"
        "topology = build(One(), Bad())\n", 1, "nothing[2] raised OSError: no database in prepare",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_topology_files(tmp_path: Path, case: str) -> None:
    text, code, message = CASES[case]
    file = tmp_path / "file.py"
    file.write_text(text)
    done = squall("run", file, "--quiet")
    assert done.returncode == code, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("squall: ")
    assert message in last
    assert done.stdout == ""
