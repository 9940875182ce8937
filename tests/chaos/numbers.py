"""A topology whose bolt does on command what executors should not do: numbers -> bolt -> seen."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from squall import BasicBolt, BasicCollector, Topology, TopologyBuilder, Tuple
from tests.process import parts


class Obeys(BasicBolt):
    """Passes numbers on; a file `raise` or `hang` in its directory is an order to one executor, which takes it."""

    outputs = ("n",)

    def __init__(self, directory: str, secs_per_tuple: float) -> None:
        self.directory = Path(directory)
        self.secs_per_tuple = secs_per_tuple

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if self.takes("raise"):
            raise ValueError("as ordered")
        if self.takes("hang"):
            threading.Event().wait()
        time.sleep(self.secs_per_tuple)
        collector.emit((tup["n"],))

    def takes(self, order: str) -> bool:
        try:
            (self.directory / order).unlink()
        except FileNotFoundError:
            return False
        return True


def topology(arguments: list[str]) -> Topology:
    """For the command line: DIRECTORY COUNT SECS_PER_TUPLE."""
    directory, count, secs_per_tuple = arguments
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(directory, int(count)), parallelism=2).set_config(max_spout_pending=50)
    builder.set_bolt("obeys", Obeys(directory, float(secs_per_tuple)), parallelism=2).shuffle_grouping("source")
    builder.set_bolt("end", parts.Seen(directory), parallelism=2).fields_grouping("obeys", "n")
    return builder.build()
