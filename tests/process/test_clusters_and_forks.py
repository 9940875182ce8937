"""Clusters and the other processes of the program that uses them: forked ones, and those of multiprocessing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from squall import LocalCluster, TopologyBuilder, bolt, spout
from squall.engine.errors import UsageError
from tests.process.cli import ROOT


def test_a_forked_process_may_not_use_a_connection_and_ends_no_cluster() -> None:
    builder = TopologyBuilder()
    builder.set_spout("numbers", spout("n")(lambda: range(10)))
    builder.set_bolt("sink", bolt(print)).shuffle_grouping("numbers")
    with LocalCluster(slots_per_node=1) as cluster:
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            try:
                cluster.names()
            except UsageError as error:
                os.write(writes, str(error).encode())
            finally:
                cluster.close()
                os._exit(0)
        os.close(writes)
        os.waitpid(child, 0)
        said = os.read(reads, 10_000).decode()
        os.close(reads)
        assert f"belongs to process {os.getpid()}, and this process was forked from it" in said
        assert cluster.submit("numbers", builder.build()).wait_until_drained(timeout=60).acked == 10


SPAWNS = """
import multiprocessing
from squall import BasicBolt, TopologyBuilder, run, spout

class Pair:
    def __init__(self, n):
        self.n = n

class Pairs(BasicBolt):
    outputs = ("pair",)
    def execute(self, tup, collector):
        collector.emit((Pair(tup["n"]),))

class Check(BasicBolt):
    def execute(self, tup, collector):
        assert isinstance(tup["pair"], Pair)

@spout("n")
def numbers():
    return range(10)

def work():
    builder = TopologyBuilder()
    builder.set_spout("numbers", numbers)
    builder.set_bolt("pairs", Pairs()).shuffle_grouping("numbers")
    builder.set_bolt("check", Check(), parallelism=2).shuffle_grouping("pairs")
    print(run(builder.build()).acked, "acked")

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
"""


def test_a_process_that_multiprocessing_spawns_runs_what_its_program_defines(tmp_path: Path) -> None:
    (tmp_path / "spawns.py").write_text(SPAWNS)
    done = subprocess.run(
        [sys.executable, tmp_path / "spawns.py"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert "10 acked" in done.stdout, done.stderr
