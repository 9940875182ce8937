"""Rows per second through a batch bolt whose calls take a fixed time, by `max_spout_pending`.

    python -m benchmarks.call_costs [--workers N] [COST_MS ...]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from squall import BatchBolt, BatchSpout, Config, LocalCluster, TopologyBuilder

_LIMITS: tuple[int | str, ...] = (64, 1024, 8192, 65_536, "adaptive")
_CALLS, _LEAST_SECS = 10, 3
"""Before the measurement, and at least in it."""


class Numbers(BatchSpout):
    """Endless."""

    outputs = ("number",)

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.collector, self.next = collector, 0

    def next_batch(self, rows: int) -> None:
        numbers = list(range(self.next, self.next + rows))
        self.next += rows
        self.collector.emit_batch((numbers,), message_ids=numbers)


class Insert(BatchBolt):
    """Waits as long for a thousand rows as for one."""

    def __init__(self, cost_secs: float) -> None:
        self.cost_secs = cost_secs

    def execute_batch(self, batch: Any, collector: Any) -> None:
        time.sleep(self.cost_secs)


def rate(cost_secs: float, limit: int | str, workers: int) -> float:
    """Measure rows acked per second, from the eleventh call on."""
    builder = TopologyBuilder(Config(workers=workers, max_spout_pending=limit))
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("insert", Insert(cost_secs)).shuffle_grouping("numbers")
    with tempfile.TemporaryDirectory() as folder, LocalCluster(slots_per_node=2, run_dir=Path(folder, "r")) as cluster:
        job = cluster.submit("costs", builder.build())
        job.wait_until_ready()
        time.sleep(max(1, _CALLS * cost_secs))
        before, began = job.stats().acked, time.monotonic()
        time.sleep(max(_LEAST_SECS, _CALLS * cost_secs))
        return (job.stats().acked - before) / (time.monotonic() - began)


def main() -> int:
    """Print a line for each cost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("cost_ms", type=float, nargs="*", default=[1.0, 4.0, 50.0, 500.0])
    given = parser.parse_args()
    for cost_ms in given.cost_ms:
        rates = [rate(cost_ms / 1000, limit, given.workers) for limit in _LIMITS]
        told = ", ".join(f"{limit}: {one:,.0f}" for limit, one in zip(_LIMITS, rates, strict=True))
        share = rates[-1] / max(rates[:-1])
        print(f"{cost_ms:g} ms a call: {told} rows/s; adaptive {share:.2f} of the best", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
