"""Rows per second behind bolts of every cost, by `max_spout_pending`: how good the one is that the engine finds.

    python -m benchmarks.call_costs [--workers N] [--only calls|rows] [--least-secs S]

Calls: a batch bolt whose calls take a fixed time. Rows: a bolt, of one task and of 16, that takes a time for each row
(it computes, or from a millisecond on it waits, in threads). Ratios are of rates measured one after the other on the
same machine; `calls` is the first from which on five in a row reach 0.8 of the best rate.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from squall import BasicBolt, BatchBolt, BatchSpout, Config, LocalCluster, Spout, TopologyBuilder

ADAPTIVE = "adaptive"
_CALLS = 10
"""Before the measurement, and at least in it."""
_AT_ONCE = 5


class Numbers(BatchSpout):
    """Endless."""

    outputs = ("number",)

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.collector, self.next = collector, 0

    def next_batch(self, rows: int) -> None:
        numbers = list(range(self.next, self.next + rows))
        self.next += rows
        self.collector.emit_batch((numbers,), message_ids=numbers)


class Single(Spout):
    """The same by rows: a shuffle keeps rows of a batch together, which leaves most of 16 slow tasks without any."""

    outputs = ("number",)

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.collector, self.next = collector, 0

    def next_tuple(self) -> None:
        self.collector.emit((self.next,), message_id=self.next)
        self.next += 1


class Insert(BatchBolt):
    """Waits as long for a thousand rows as for one, and notes when each call began and what it was given."""

    def __init__(self, cost_secs: float, calls: Path) -> None:
        self.cost_secs, self.calls = cost_secs, calls

    def execute_batch(self, batch: Any, collector: Any) -> None:
        with self.calls.open("a") as calls:
            calls.write(f"{time.monotonic()} {len(batch)}\n")
        time.sleep(self.cost_secs)


class Compute(BasicBolt):
    """Takes a processor for each row."""

    def __init__(self, cost_secs: float) -> None:
        self.cost_secs = cost_secs

    def execute(self, tup: Any, collector: Any) -> None:
        ends = time.perf_counter() + self.cost_secs
        while time.perf_counter() < ends:
            pass


class Wait(BasicBolt):
    """Waits for each row."""

    blocking = True

    def __init__(self, cost_secs: float) -> None:
        self.cost_secs = cost_secs

    def execute(self, tup: Any, collector: Any) -> None:
        time.sleep(self.cost_secs)


class Rates:
    """Measures topologies one after the other on one cluster."""

    def __init__(self, cluster: LocalCluster, workers: int, least_secs: float) -> None:
        self.cluster, self.workers, self.least_secs = cluster, workers, least_secs
        self.names = map("costs-{}".format, itertools.count())

    def of(self, bolt: Any, parallelism: int, limit: int | str, cost_secs: float) -> float:
        """Measure rows acked per second, from the eleventh call on."""
        builder = TopologyBuilder(Config(workers=self.workers, max_spout_pending=limit))
        builder.set_spout("numbers", Numbers() if isinstance(bolt, BatchBolt) else Single())
        builder.set_bolt("bolt", bolt, parallelism=parallelism).shuffle_grouping("numbers")
        job = self.cluster.submit(next(self.names), builder.build())
        job.wait_until_ready()
        time.sleep(max(1, _CALLS * cost_secs))
        before, began = job.stats().acked, time.monotonic()
        time.sleep(max(self.least_secs, _CALLS * cost_secs))
        acked, ended = job.stats().acked, time.monotonic()
        job.kill(wait_secs=0)
        return (acked - before) / (ended - began)


def calls_until(calls: Path, good: float) -> str:
    """Find the first call from which on a few in a row have reached this rate."""
    noted = [(float(began), int(rows)) for began, rows in map(str.split, calls.read_text().splitlines())]
    for first in range(len(noted) - _AT_ONCE):
        some = noted[first : first + _AT_ONCE]
        if sum(rows for _, rows in some) >= good * (noted[first + _AT_ONCE][0] - some[0][0]):
            return str(first)
    return "never"


def line(what: str, rates: dict[int | str, float]) -> str:
    """Make the line of one cost: the best fixed setting, the one found, and the ratio."""
    best = max(rates.keys() - {ADAPTIVE}, key=rates.__getitem__)
    found = rates[ADAPTIVE]
    return f"{what:28}{rates[best]:>12,.0f} with {best:<7}{found:>12,.0f}{found / rates[best]:>8.2f}"


def calls(rates: Rates, folder: Path) -> None:
    """Print the lines of batch bolts."""
    for cost_ms in (1, 4, 50, 500):
        found, log = {}, folder / "calls"
        for limit in (1024, 8192, 65_536, ADAPTIVE):
            log.unlink(missing_ok=True)
            found[limit] = rates.of(Insert(cost_ms / 1000, log), 1, limit, cost_ms / 1000)
        first = calls_until(log, 0.8 * max(found[limit] for limit in found if limit != ADAPTIVE))
        print(line(f"{cost_ms} ms a call", found) + f"{first:>8}", flush=True)


def rows(rates: Rates) -> None:
    """Print the lines of bolts by rows."""
    for cost_us, tasks in itertools.product((10, 100, 1000, 10_000, 100_000, 1_000_000), (1, 16)):
        cost_secs = cost_us / 1e6
        bolt = Compute(cost_secs) if cost_us < 1000 else Wait(cost_secs)
        limits = (64, 1024, 8192) if cost_us < 10_000 else (16, 64, 256)
        found = {limit: rates.of(bolt, tasks, limit, cost_secs) for limit in (*limits, ADAPTIVE)}
        print(line(f"{cost_us:,} us a row, {tasks} tasks", found), flush=True)


def main() -> int:
    """Print a line for each cost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", choices=("calls", "rows"))
    parser.add_argument("--least-secs", type=float, default=2.0)
    given = parser.parse_args()
    print(f"{'cost':28}{'best fixed':>12}{'':13}{ADAPTIVE:>12}{'ratio':>8}{'calls':>8}")
    with tempfile.TemporaryDirectory() as folder, LocalCluster(slots_per_node=2, run_dir=Path(folder, "r")) as cluster:
        rates = Rates(cluster, given.workers, given.least_secs)
        if given.only != "rows":
            calls(rates, Path(folder))
        if given.only != "calls":
            rows(rates)
    return 0


if __name__ == "__main__":
    sys.exit(main())
