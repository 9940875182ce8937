"""Watches a website: rates, error ratios and p99 latencies of each URL in windows of five minutes, and alarms.

    squall run examples/website_monitoring/monitor.py --workers 2 -- build/web

reads build/web/feed (which `squall prepare` made by access.sql) and writes build/web/windows and build/web/alarms,
in Parquet.

::

    requests ──fields(url)──► measure ──┬──► windows (ParquetSink)
                                        └─ alarms ──┬──► alarms (ParquetSink)
                                                    └──► announce

Time is that of the requests, not of the clock, so the results are the same however fast they are read. `measure` emits
a window whenever it has changed: of the rows of a window, that with the most requests counts. An alarm that later
requests of its window take back gets a row with raised = false.

The figures are exact under any number of worker deaths: `measure` stores requests in SQLite before it acks them, and
recognises requests that come again by their origin, as FeedSpout numbers them. In memory it has the windows that were
touched last; an older one is read again if a late request is for it.
"""

from __future__ import annotations

import argparse
import sqlite3
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from squall import (
    Bolt,
    BoltCollector,
    FeedSpout,
    ParquetSink,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    UsageError,
    bolt,
)

WINDOW_SECS = 300
MIN_REQUESTS = 20
"""Fewer in a window raise no alarm: one error in three says nothing."""
LIMITS = {"error_ratio": 0.2, "p99_ms": 2000.0}
"""An alarm is raised above."""
HOLD_TUPLES = 2048
TICK_SECS = 0.05
KEPT_WINDOWS = 5_000
"""Windows that a task has in memory, beside those of the requests at hand."""
PRUNE_SEEN = 50_000
"""Numbers that a task remembers before it forgets those that never come again."""

WINDOWS = {
    "url": "string", "window": "string", "requests": "int64", "errors": "int64", "bytes": "int64",
    "error_ratio": "float64", "p50_ms": "int64", "p99_ms": "int64",
}
ALARMS = {
    "url": "string", "window": "string", "kind": "string", "requests": "int64", "value": "float64", "raised": "bool",
}

TABLES = """
CREATE TABLE IF NOT EXISTS hits (
    url TEXT, start INTEGER, error INTEGER, ms INTEGER, requests INTEGER, bytes INTEGER,
    PRIMARY KEY (url, start, error, ms)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (life INTEGER, number INTEGER, PRIMARY KEY (life, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS floors (life INTEGER PRIMARY KEY, floor INTEGER);
CREATE TABLE IF NOT EXISTS raised (url TEXT, start INTEGER, kind TEXT, PRIMARY KEY (url, start, kind)) WITHOUT ROWID;
"""
ADD_HIT = """
INSERT INTO hits VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET requests = requests + excluded.requests, bytes = bytes + excluded.bytes
"""

Key = tuple[str, int]
"""A URL, and the second at which a window of it starts."""


class Window:
    """What is known of a URL in five minutes."""

    def __init__(self) -> None:
        self.requests = self.errors = self.bytes = 0
        self.latencies: Counter[int] = Counter()
        self.raised: set[str] = set()
        """Kinds of alarms that were raised once."""
        self.now_raised: set[str] = set()

    def add(self, error: int, ms: int, requests: int, size: int) -> None:
        self.requests += requests
        self.errors += error * requests
        self.bytes += size
        self.latencies[ms] += requests

    def percentile(self, percent: int) -> int:
        """The smallest latency that `percent` of the requests do not exceed."""
        left = -(-self.requests * percent // 100)
        for ms in sorted(self.latencies):
            left -= self.latencies[ms]
            if left <= 0:
                return ms
        raise ValueError("a window without requests has no percentile")

    def values(self) -> tuple[Any, ...]:
        ratio = self.errors / self.requests
        return self.requests, self.errors, self.bytes, ratio, self.percentile(50), self.percentile(99)


class Measure(Bolt):
    """Keeps the windows of its URLs."""

    outputs = {"default": tuple(WINDOWS), "alarms": (*ALARMS, "changed")}

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.held: list[Tuple] = []
        self.windows: OrderedDict[Key, Window] = OrderedDict()
        self.db = sqlite3.connect(Path(context.state_dir) / "windows.db", check_same_thread=False)
        # What is written survives the death of the process; a power loss is not promised anyway.
        self.db.execute("PRAGMA synchronous = OFF")
        self.db.executescript(TABLES)
        self.seen: defaultdict[int, set[int]] = defaultdict(set)
        for life, number in self.db.execute("SELECT * FROM seen"):
            self.seen[life].add(number)
        self.floors: dict[int, int] = dict(self.db.execute("SELECT * FROM floors").fetchall())

    def window(self, key: Key) -> Window:
        """The window of a key, as all requests that were committed made it."""
        window = self.windows.get(key)
        if window is None:
            window = self.windows[key] = Window()
            of_key = "WHERE url = ? AND start = ?"
            for hit in self.db.execute(f"SELECT error, ms, requests, bytes FROM hits {of_key}", key):
                window.add(*hit)
            window.raised = {kind for (kind,) in self.db.execute(f"SELECT kind FROM raised {of_key}", key)}
            window.now_raised = {kind for kind in window.raised if self.alarms_of(window)[kind] > LIMITS[kind]}
        self.windows.move_to_end(key)
        return window

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)
        if tup.is_tick or len(self.held) >= HOLD_TUPLES:
            self.commit()

    def commit(self) -> None:
        """Store the requests that are held, emit their windows, and ack them."""
        requests = [tup for tup in self.held if not tup.is_tick]
        touched: defaultdict[Key, list[Tuple]] = defaultdict(list)
        """Also of requests that were stored before a death: the sinks may not have had their windows."""
        fresh: list[tuple[int, int]] = []
        hits: list[tuple[str, int, int, int, int, int]] = []
        for tup in requests:
            (life, number, floor), at, url, status, size, ms = tup.values
            key = url, at - at % WINDOW_SECS
            touched[key].append(tup)
            if floor > self.floors.get(life, 0):
                self.floors[life] = floor
            if number >= self.floors.get(life, 0) and number not in self.seen[life]:
                self.seen[life].add(number)
                fresh.append((life, number))
                hits.append((*key, int(status >= 500), ms, 1, size))
                self.window(key).add(int(status >= 500), ms, 1, size)
        alarms = [alarm for key in touched for alarm in self.judge(key)]
        if touched:
            self.store(fresh, hits, alarms)
        for key, anchors in touched.items():
            self.collector.emit((key[0], name_of(key[1]), *self.window(key).values()), anchors=anchors)
        for key, kind, value, raised, changed in alarms:
            row = (key[0], name_of(key[1]), kind, self.window(key).requests, value, raised, changed)
            self.collector.emit(row, anchors=touched[key], stream="alarms")
        for tup in self.held:
            self.collector.ack(tup)
        self.held = []
        while len(self.windows) > KEPT_WINDOWS:
            self.windows.popitem(last=False)

    def alarms_of(self, window: Window) -> dict[str, float]:
        if window.requests < MIN_REQUESTS:
            return dict.fromkeys(LIMITS, 0.0)
        return {"error_ratio": window.errors / window.requests, "p99_ms": float(window.percentile(99))}

    def judge(self, key: Key) -> list[tuple[Key, str, float, bool, bool]]:
        """The alarms of a window that are raised, or were: (key, kind, value, raised, whether that is new)."""
        found, window = [], self.window(key)
        for kind, value in self.alarms_of(window).items():
            raised = value > LIMITS[kind]
            if raised or kind in window.raised:
                found.append((key, kind, value, raised, raised != (kind in window.now_raised)))
                (window.now_raised.add if raised else window.now_raised.discard)(kind)
                window.raised.add(kind)
        return found

    def store(self, fresh: list[tuple[int, int]], hits: list[Any], alarms: list[Any]) -> None:
        """In one transaction: all of it survives, or nothing."""
        with self.db:
            self.db.executemany(ADD_HIT, hits)
            self.db.executemany("INSERT INTO seen VALUES (?, ?)", fresh)
            self.db.executemany("INSERT OR REPLACE INTO floors VALUES (?, ?)", self.floors.items())
            self.db.executemany(
                "INSERT OR IGNORE INTO raised VALUES (?, ?, ?)", [(*key, kind) for key, kind, *_ in alarms]
            )
            for life, numbers in self.seen.items():
                if len(numbers) > PRUNE_SEEN:
                    floor = self.floors.get(life, 0)
                    self.db.execute("DELETE FROM seen WHERE life = ? AND number < ?", (life, floor))
                    numbers.difference_update([number for number in numbers if number < floor])

    def cleanup(self) -> None:
        self.db.close()


def name_of(start: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(start))


@bolt
def announce(tup):
    if tup["changed"]:
        verb = "is" if tup["raised"] else "is no longer"
        limit = f"{tup['kind']} {verb} above {LIMITS[tup['kind']]:g}"
        print(f"alarm: {tup['window']} {tup['url']}: {limit}: {tup['value']:.4g}")


class Arguments(argparse.ArgumentParser):
    """A parser whose errors are one line of Squall's."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def topology(args: list[str]) -> Topology:
    parser = Arguments(prog="monitor.py", description="Watch a website by its access logs.")
    parser.add_argument("base", type=Path, help="where the feed is, and the results go")
    parser.add_argument("--parallelism", type=int, default=2, help="executors per component (default 2)")
    options = parser.parse_args(args)
    for name in ("windows", "alarms"):
        if (options.base / name).exists():
            raise UsageError(f"{options.base / name} has results already; remove it to begin anew")

    builder = TopologyBuilder()
    requests = FeedSpout(options.base / "feed", ("at", "url", "status", "bytes", "ms"), with_origin=True)
    builder.set_spout("requests", requests, parallelism=options.parallelism).set_config(max_spout_pending=20_000)
    measure = builder.set_bolt("measure", Measure(), parallelism=options.parallelism)
    measure.fields_grouping("requests", "url").set_config(tick_tuple_freq_secs=TICK_SECS)
    windows = ParquetSink(options.base / "windows", schema=WINDOWS)
    builder.set_bolt("windows", windows).global_grouping("measure")
    alarms = ParquetSink(options.base / "alarms", schema=ALARMS)
    builder.set_bolt("alarms", alarms).global_grouping("measure", stream="alarms")
    builder.set_bolt("announce", announce).global_grouping("measure", stream="alarms")
    return builder.build()
