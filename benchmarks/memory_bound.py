"""`python -m benchmarks.memory_bound`: memory of workers while a bolt is a hundred times too slow, over an hour.

A stream of 100 tuples a second meets a bolt that executes one: in an hour 360,000 tuples of 10 KiB are offered, 3.4
GiB, and 3,600 executed. The hour is compressed: the bolt takes `RUN_SECS` / 3,600 s for a tuple, and the untracked
spout emits as fast as it may, so that as much is executed, and as much could pile up, as in the hour. The bolt runs
once in the loop of another worker, once on a thread beside the spout.

Writes benchmarks/MEMORY.md. Takes `2 * RUN_SECS` and some seconds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from squall import (
    BasicBolt,
    BasicCollector,
    Config,
    LocalCluster,
    Spout,
    SpoutCollector,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from squall.ipc.board import SLOT_HELD_BYTES
from squall.scheduler.client.job import Job

RUN_SECS = 80.0
EXECUTED_PER_HOUR = 3600
VALUE_BYTES = 10 * 1024
_LOOKS = 20
_MIB = 1 << 20
_RESULTS = Path(__file__).with_name("MEMORY.md")


class Offers(Spout):
    """Emits as fast as it may; each value is a new object."""

    outputs = ("n", "data")

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector
        self.n = 0

    def next_tuple(self) -> None:
        self.n += 1
        self.collector.emit((self.n, bytes([self.n % 251]) * VALUE_BYTES))


class Manages(BasicBolt):
    """Executes one tuple per second of the hour."""

    def __init__(self, blocking: bool) -> None:
        self.blocking = blocking

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        time.sleep(RUN_SECS / EXECUTED_PER_HOUR)


def look(job: Job, workers: int) -> tuple[list[int], list[int]]:
    """Bytes of each worker, and of its queues."""
    view = job.view()
    assert view is not None
    board = view.board
    occupied = [psutil.Process(board.slot(slot).pid).memory_info().rss for slot in range(workers)]
    return occupied, [board.words[board.slot_at(slot) + SLOT_HELD_BYTES] for slot in range(workers)]


def measure(workers: int, blocking: bool) -> list[str]:
    """Make the table's rows: minute of the hour, executed, MiB of each worker, MiB in its queues, a bar."""
    builder = TopologyBuilder()
    builder.set_spout("offers", Offers())
    builder.set_bolt("manages", Manages(blocking)).shuffle_grouping("offers")
    rows = []
    with LocalCluster(slots_per_node=workers) as cluster:
        job = cluster.submit("memory", builder.build(), Config(workers=workers, ackers=0, max_spout_pending=None))
        job.wait_until_ready(timeout=30)
        began = time.monotonic()
        for number in range(1, _LOOKS + 1):
            time.sleep(max(0.0, began + number * RUN_SECS / _LOOKS - time.monotonic()))
            occupied, held = look(job, workers)
            executed = job.stats().components["manages"].executed
            rows.append(
                f"| {60 * number // _LOOKS} | {executed} | {_mib(occupied)} | {_mib(held)} "
                f"| `{'#' * (max(occupied) // (2 * _MIB))}` |"
            )
    return rows


def _mib(sizes: list[int]) -> str:
    return ", ".join(f"{size / _MIB:.0f}" for size in sizes)


def main() -> None:
    text = [
        "# Memory of a bolt that is a hundred times too slow, over an hour",
        "",
        f"Written by `python -m benchmarks.memory_bound`: the hour in {RUN_SECS:g} s, values of",
        f"{VALUE_BYTES >> 10} KiB, untracked, all settings as they are by default. A `#` is 2 MiB of the larger",
        "worker.",
    ]
    for title, workers, blocking in (
        ("In the loop of another worker", 2, False), ("On a thread beside the spout", 1, True)
    ):
        text += [
            "", f"## {title}", "", "| minute | executed | MiB of each worker | MiB in queues | |",
            "| ---: | ---: | --- | --- | --- |", *measure(workers, blocking),
        ]
    _RESULTS.write_text("\n".join(text) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    main()
