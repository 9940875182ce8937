"""Watches a website: rates, error ratios and p99 latencies of each URL in windows of five minutes, and alarms.

    squall run examples/website_monitoring/monitor.py --workers 2 -- build/web

reads build/web/feed (which `squall prepare` made by access.sql) and writes build/web/windows and build/web/alarms,
in Parquet.

::

    requests ──fields(url)──► measure ──┬──► windows (ParquetSink)
                                        └─ alarms ──┬──► alarms (ParquetSink)
                                                    └──► announce

Time is that of the requests, and they may come in any order, as tasks read several days at once: so no window is ever
closed, and `measure` emits one whenever it has changed. Of the rows of a window, that with the most requests counts. An
alarm that later requests of its window take back gets a row with raised = false.

The figures are exact under any number of worker deaths: each request is in the state of `measure` once.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from itertools import accumulate
from pathlib import Path

from squall import (
    BatchCollector,
    ColumnBatch,
    FeedSpout,
    ParquetSink,
    StatefulBatchBolt,
    Topology,
    TopologyBuilder,
    UsageError,
    bolt,
)

WINDOW_SECS = 300
MIN_REQUESTS = 20
"""Fewer in a window raise no alarm: one error in three says nothing."""
LIMITS = {"error_ratio": 0.2, "p99_ms": 2000.0}
"""An alarm is raised above."""
TASKS = 2

WINDOWS = {
    "url": "string", "window": "string", "requests": "int64", "errors": "int64", "bytes": "int64",
    "error_ratio": "float64", "p50_ms": "int64", "p99_ms": "int64",
}
ALARMS = {
    "url": "string", "window": "string", "kind": "string", "requests": "int64", "value": "float64", "raised": "bool",
}


class Measure(StatefulBatchBolt):
    """Its state: (URL, start of a window) -> errors, bytes, requests by latency, alarms that were raised by kind, and
    whether they are now."""

    outputs = {"default": tuple(WINDOWS), "alarms": (*ALARMS, "changed")}
    state_kept_keys = 5_000

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        last: dict[tuple[str, int], int] = {}
        """The windows that change, each with the last row that changes it."""
        for row, (at, url, status, size, ms) in enumerate(batch.to_rows()):
            key = url, at - at % WINDOW_SECS
            errors, total, latencies, raised = self.state.get(key) or (0, 0, Counter(), {})
            latencies[ms] += 1
            self.state[key] = errors + (status >= 500), total + size, latencies, raised
            last[key] = row
        windows, alarms, parents = [], [], []
        for (url, start), row in last.items():
            errors, total, latencies, raised = self.state[url, start]
            requests, p50, p99 = latencies.total(), percentile(latencies, 50), percentile(latencies, 99)
            name = time.strftime("%Y-%m-%d %H:%M", time.gmtime(start))
            windows.append((url, name, requests, errors, total, errors / requests, p50, p99))
            for kind, value in {"error_ratio": errors / requests, "p99_ms": float(p99)}.items():
                is_raised = requests >= MIN_REQUESTS and value > LIMITS[kind]
                if is_raised or kind in raised:
                    changed = is_raised != raised.get(kind, False)
                    alarms.append((url, name, kind, requests, value, is_raised, changed))
                    parents.append(row)
                    raised[kind] = is_raised
        collector.emit_batch([*zip(*windows, strict=True)], parents=[*last.values()])
        if alarms:
            collector.emit_batch([*zip(*alarms, strict=True)], parents=parents, stream="alarms")


def percentile(latencies: Counter[int], percent: int) -> int:
    """The smallest latency that `percent` of the requests do not exceed."""
    ordered = sorted(latencies)
    up_to = [*accumulate(map(latencies.__getitem__, ordered))]
    return ordered[bisect_left(up_to, -(-up_to[-1] * percent // 100))]


@bolt
def announce(tup):
    if tup["changed"]:
        verb = "is" if tup["raised"] else "is no longer"
        limit = f"{tup['kind']} {verb} above {LIMITS[tup['kind']]:g}"
        print(f"alarm: {tup['window']} {tup['url']}: {limit}: {tup['value']:.4g}")


def topology(args: list[str]) -> Topology:
    if len(args) != 1:
        raise UsageError("monitor.py needs the directory of the feed, where results go, too; e.g. -- build/web")
    base = Path(args[0])
    for name in ("windows", "alarms"):
        if (base / name).exists():
            raise UsageError(f"{base / name} has results already; remove it to begin anew")

    builder = TopologyBuilder()
    requests = FeedSpout(base / "feed", ("at", "url", "status", "bytes", "ms"))
    builder.set_spout("requests", requests, parallelism=TASKS).set_config(max_spout_pending=20_000)
    builder.set_bolt("measure", Measure(), parallelism=TASKS).fields_grouping("requests", "url")
    builder.set_bolt("windows", ParquetSink(base / "windows", schema=WINDOWS)).global_grouping("measure")
    alarms = ParquetSink(base / "alarms", schema=ALARMS)
    builder.set_bolt("alarms", alarms).global_grouping("measure", stream="alarms")
    builder.set_bolt("announce", announce).global_grouping("measure", stream="alarms")
    return builder.build()
