"""`python -m benchmarks.identity_memory`: what the identities of records that count once take, in memory and on disk,
while some records become dead letters and one message is held.

A source meets a bolt with state as fast as it goes. A bolt behind it, whose failures come when the state has counted
the record, fails one record in 2,000 whenever it comes, which is a dead letter after two attempts; it holds the first
record, unacked, until it is let go near the end. What is remembered of the others must not grow with their number.
`--records` is an hour's worth of a stream of 1,000 records a second by default; `--secs` ends earlier.

Prints a line each `--every` seconds. With `--dead-every 0` or `--no-held` the same without one of the two.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from squall import (
    BatchCollector,
    Bolt,
    BoltCollector,
    ColumnBatch,
    Config,
    Job,
    LocalCluster,
    StatefulBatchBolt,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from squall.connect import Source

KEYS = 1_000
HELD = 1
"""Position of the record that is held."""
_AT_ONCE = 500
_MIB = 1 << 20
_HEAD = ("secs", "acked", "dead letters", "a second", "RSS MiB", "identities", "state MiB", "run dir MiB")


class Numbers(Source):
    """Records with positions from 1 up."""

    outputs = ("n",)

    def __init__(self, count: int) -> None:
        self.count = count

    def read_from(self, position: Any) -> Iterator[Any]:
        begin = position or 0
        while begin < self.count:
            end = min(self.count, begin + _AT_ONCE)
            yield [(n, (n,)) for n in range(begin + 1, end + 1)]
            begin = end


class Counts(StatefulBatchBolt):
    """Counts by key, and passes on."""

    outputs = ("n",)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        # The attributes of the engine's task around this object, which no user needs.
        [its] = [each for each in gc.get_referrers(self) if isinstance(each, dict) and each.get("inner") is self]
        context.gauge("identities", lambda: len(its["commits"].absorbed))

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        for n in batch["n"]:
            self.state[n % KEYS] = self.state.get(n % KEYS, 0) + 1
        collector.emit_batch([batch["n"]])


class Holds(Bolt):
    """Fails one record in `dead_every`, keeps the held one until a file is there, and acks all others."""

    def __init__(self, dead_every: int, let_go: str) -> None:
        self.dead_every = dead_every
        self.let_go = let_go

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            if os.path.exists(self.let_go):
                for held in self.held:
                    self.collector.ack(held)
                self.held.clear()
        elif self.let_go and tup["n"] == HELD:
            self.held.append(tup)
        elif self.dead_every and tup["n"] % self.dead_every == self.dead_every - 1:
            self.collector.fail(tup)
        else:
            self.collector.ack(tup)


def bytes_below(directory: Path) -> int:
    """Bytes on disk of all files below a directory."""
    found = 0
    for where, _, names in os.walk(directory):
        for name in names:
            try:
                found += os.lstat(os.path.join(where, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return found


def look(job: Job, began: float, before: tuple[float, int]) -> list[float]:
    """Read the figures of one line; `before`: seconds and acks of the one before."""
    report, view = job.stats(), job.view()
    assert view is not None
    secs = time.monotonic() - began
    pids = [view.board.slot(slot).pid for slot in range(view.board.n_slots)]
    rss = sum(psutil.Process(pid).memory_info().rss for pid in pids)
    remembered: Any = report.metrics.get("counts", {}).get("identities", {})
    return [
        secs, report.acked, report.dead_letters, (report.acked - before[1]) / max(1e-9, secs - before[0]), rss / _MIB,
        sum(remembered.values()),
        bytes_below(job.run_dir.topology_state(job.name)) / _MIB, bytes_below(Path(job.run_dir.path)) / _MIB,
    ]


def shown(figures: list[float]) -> str:
    """Make a line of the table."""
    return "  ".join(f"{figure:>{max(8, len(head))},.0f}" for head, figure in zip(_HEAD, figures, strict=True))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, default=3_600_000)
    arguments.add_argument("--secs", type=float, default=600.0)
    arguments.add_argument("--every", type=float, default=5.0)
    arguments.add_argument("--dead-every", type=int, default=2_000)
    arguments.add_argument("--no-held", action="store_true")
    arguments.add_argument("--workers", type=int, default=1)
    given = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(slots_per_node=given.workers, run_dir=f"{directory}/run", logs=False) as cluster,
    ):
        let_go = f"{directory}/let-go"
        builder = TopologyBuilder()
        builder.set_spout("numbers", Numbers(given.records))
        builder.set_bolt("counts", Counts()).shuffle_grouping("numbers")
        behind = Holds(given.dead_every, "" if given.no_held else let_go)
        builder.set_bolt("holds", behind).shuffle_grouping("counts").set_config(tick_tuple_freq_secs=0.2)
        config = Config(workers=given.workers, max_attempts=2, message_timeout_secs=7200)
        job = cluster.submit("identities", builder.build(), config)
        job.wait_until_ready(60)
        began, lines = time.monotonic(), [[0.0] * len(_HEAD)]
        print("  ".join(f"{head:>8}" for head in _HEAD), flush=True)
        while lines[-1][0] < given.secs and lines[-1][1] + lines[-1][2] < given.records - 1:
            time.sleep(given.every)
            lines.append(look(job, began, (lines[-1][0], int(lines[-1][1]))))
            print(shown(lines[-1]), flush=True)
        print("held message acked")
        Path(let_go).touch()
        for _ in range(3):
            time.sleep(given.every)
            lines.append(look(job, began, (lines[-1][0], int(lines[-1][1]))))
            print(shown(lines[-1]), flush=True)


if __name__ == "__main__":
    main()
