"""A topology whose bolt does on command what executors should not do: numbers -> bolt -> seen.

Some of the numbers carry so much that it goes by the arena.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from squall import BasicBolt, BasicCollector, Topology, TopologyBuilder, Tuple
from tests.process import parts

LIMIT = "limit"
"""File with the number at which the source ends; without it there is no end."""


def load(n: int) -> bytes:
    return random.Random(n).randbytes(100_000 if n % 8 == 0 else 10)


class Source(parts.Numbers):
    """0, 1, 2 ...; what was acked is not read again by the next incarnation."""

    outputs = ("n", "load")

    def __init__(self, directory: str) -> None:
        super().__init__(directory, 0)

    def read(self) -> Iterator[tuple[Any, Any]]:
        done = set(parts.notes(self.directory, "acked"))
        limit = Path(self.directory, LIMIT)
        tasks = len(self.context.component_tasks(self.context.component_id))
        for n in itertools.count(self.context.task_index, tasks):
            if limit.exists() and n >= int(limit.read_text()):
                return
            if n not in done:
                yield n, (n, load(n))


class Obeys(BasicBolt):
    """Passes numbers on; a file `raise` or `hang` in its directory is an order to one executor, which takes it."""

    outputs = ("n", "load")

    def __init__(self, directory: str, secs_per_tuple: float) -> None:
        self.directory = Path(directory)
        self.secs_per_tuple = secs_per_tuple

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if self.takes("raise"):
            raise ValueError("as ordered")
        if self.takes("hang"):
            threading.Event().wait()
        time.sleep(self.secs_per_tuple)
        collector.emit(tup.values)

    def takes(self, order: str) -> bool:
        try:
            (self.directory / order).unlink()
        except FileNotFoundError:
            return False
        return True


class Seen(parts.Seen):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        n = tup["n"]
        assert tup["load"] == load(n), f"{n} is not what was sent"
        parts.note(self.directory, "seen", [self.index, n])


def topology(arguments: list[str]) -> Topology:
    """For the command line: DIRECTORY SECS_PER_TUPLE."""
    directory, secs_per_tuple = arguments
    builder = TopologyBuilder()
    builder.set_spout("source", Source(directory), parallelism=2).set_config(max_spout_pending=50)
    builder.set_bolt("obeys", Obeys(directory, float(secs_per_tuple)), parallelism=2).shuffle_grouping("source")
    builder.set_bolt("end", Seen(directory), parallelism=2).fields_grouping("obeys", "n")
    return builder.build()
