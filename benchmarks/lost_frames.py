"""`python -m benchmarks.lost_frames`: word count on two workers with whole links, and with 5 % of all frames dropped.

The kinds alternate; a row is the median. Every line is tracked, and emitted again until it is acked. While links are
broken, acks travel in frames, not in shared memory, so runs without faults are measured both ways.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.corpus import eight_a_line
from benchmarks.word_count import Count, Split
from squall import Config, LocalCluster, ReplayingSpout, RunReport, Topology, TopologyBuilder

_WORKERS = 2
_RUNS = 5
_LINES = 200_000
_LOADS = {"whole links": None, "whole links, acks in frames": 0.0, "5 % of frames dropped": 0.05}
"""Kind of run -> share of the frames that are dropped."""


class Lines(ReplayingSpout):
    """Emits the lines of a file, over and over until there are enough."""

    outputs = ("line",)

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> Iterator[tuple[Any, tuple[str]]]:
        lines = Path(self.path).read_text(encoding="utf-8").split("\n")
        for number in range(_LINES // _WORKERS):
            yield number, (lines[number % len(lines)],)


def topology(path: Path) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("lines", Lines(str(path)), parallelism=_WORKERS).set_config(max_spout_pending=5000)
    builder.set_bolt("split", Split(), parallelism=_WORKERS).local_or_shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=_WORKERS).fields_grouping("split", "word")
    return builder.build()


def measured(path: Path, dropped: float | None) -> tuple[float, RunReport]:
    """Seconds from activation until all is acked, and the report."""
    with LocalCluster(slots_per_node=_WORKERS) as cluster:
        job = cluster.submit("bench", topology(path), Config(workers=_WORKERS), active=False)
        job.wait_until_ready(timeout=30)
        if dropped is not None:
            cluster.inject("drop", probability=dropped, for_secs=600)
        began = time.perf_counter()
        job.activate()
        report = job.wait_until_drained(timeout=300)
        secs = time.perf_counter() - began
    if report.pending or report.timed_out or report.acked != _LINES:
        raise SystemExit(f"not a valid run: {report}")
    return secs, report


def main() -> None:
    secs: dict[str, list[float]] = {load: [] for load in _LOADS}
    lost = failed = 0
    with tempfile.TemporaryDirectory(prefix="sq-bench-") as directory:
        path = Path(directory) / "lines.txt"
        path.write_text("\n".join(eight_a_line()), encoding="utf-8")
        for number in range(_RUNS):
            for load, dropped in _LOADS.items():
                took, report = measured(path, dropped)
                secs[load].append(took)
                lost, failed = report.links["lost"], report.failed
                print(f"{number + 1}: {load}: {_LINES / took / 1e3:.0f} k lines/s; {lost} frames lost, {failed} "
                      "attempts failed, none timed out", file=sys.stderr)
    base = statistics.median(secs["whole links"])
    print("| links | throughput | beside |\n| --- | --- | --- |")
    for load, times in secs.items():
        middle = statistics.median(times)
        print(f"| {load} | {_LINES / middle / 1e3:.0f} k lines/s | {base / middle:.2f} |")


if __name__ == "__main__":
    main()
