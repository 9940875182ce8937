"""Values of classes that the topology file or the main program defines travel between workers like any others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.cli import command, environment

PROGRAM = """
import dataclasses
import enum
import multiprocessing
import sys
from squall import BasicBolt, Config, Spout, TopologyBuilder, run

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

@dataclasses.dataclass(frozen=True)
class Order:
    number: int
    colour: Colour

class Orders(Spout):
    outputs = ("order",)
    def open(self, conf, context, collector):
        self.collector, self.next = collector, 0
    def next_tuple(self):
        if self.next < 200:
            self.collector.emit((Order(self.next, Colour(1 + self.next % 2)),), message_id=self.next)
            self.next += 1
        self.exhausted = self.next == 200

class Pass(BasicBolt):
    outputs = ("order",)
    def execute(self, tup, collector):
        assert type(tup["order"]) is Order
        collector.emit((tup["order"],))

class Check(BasicBolt):
    def prepare(self, conf, context):
        self.seen = set()
    def execute(self, tup, collector):
        order = tup["order"]
        assert isinstance(order, Order) and order.colour is Colour(1 + order.number % 2)
        self.seen.add(order)
    def cleanup(self):
        print("orders seen:", len(self.seen))

def topology():
    builder = TopologyBuilder()
    builder.set_spout("orders", Orders())
    builder.set_bolt("pass", Pass(), 3).shuffle_grouping("orders")
    builder.set_bolt("check", Check()).global_grouping("pass")
    return builder.build()

def main():
    print(run(topology(), Config(workers=2)).acked)

if __name__ == "__main__":
    if sys.argv[1:] == ["spawn"]:
        process = multiprocessing.get_context("spawn").Process(target=main)
        process.start()
        process.join()
    else:
        main()
"""


@pytest.mark.parametrize("way", ["run", "program", "spawn"])
def test_classes_of_a_topology_file_or_of_the_main_program(tmp_path: Path, way: str) -> None:
    """Also where that is a process that multiprocessing spawned."""
    file = tmp_path / "orders.py"
    file.write_text(PROGRAM)
    line = command("run", file, "--workers", "2", "--quiet") if way == "run" else [sys.executable, str(file), way]
    done = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert way == "run" or done.stdout.strip() == "200"
    assert "orders seen: 200" in done.stderr
