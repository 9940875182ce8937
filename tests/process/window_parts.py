"""Topologies with windows and with sinks that write once, and what they must lead to."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyarrow import parquet

from squall import (
    BasicCollector,
    FileSink,
    ParquetSink,
    Spout,
    SpoutCollector,
    SqlSink,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    Window,
    WindowedBolt,
    bolt,
)
from tests.unit.wired import wired

USERS, STEP_MS, LENGTH_MS, SLIDE_MS, GAP_MS = 5, 10, 2000, 500, 300


def event(number: int) -> tuple[str, float, int]:
    """User, time and number: times are out of order by up to five steps, and each user pauses now and then."""
    time_ms = (number + (number * 7) % 5 + 100 * (number // 200)) * STEP_MS
    return f"u{number % USERS}", time_ms / 1000, number


class Events(Spout):
    """Each task emits all events; killed, it begins again."""

    outputs = ("user", "at", "number")

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.next, self.failed = collector, 0, list[int]()

    def next_tuple(self) -> None:
        if self.failed or self.next < self.count:
            number = self.failed.pop() if self.failed else self.next
            self.next = max(self.next, number + 1)
            self.collector.emit(event(number), message_id=number)

    def fail(self, message_id: Any) -> None:
        self.failed.append(message_id)

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return self.next >= self.count and not self.failed


PASS_ON = bolt(*Events.outputs)(lambda tup: tup.values)


class Sums(WindowedBolt):
    outputs = ("user", "start", "end", "count", "sum")

    def execute_window(self, window: Window, collector: BasicCollector) -> None:
        numbers = [tup["number"] for tup in window.get()]
        collector.emit((window.key, window.start, window.end, len(numbers), sum(numbers)))


class Folded(Sums):
    """The same without the tuples."""

    def fold(self, so_far: Any, tup: Tuple) -> Any:
        count, total = so_far or (0, 0)
        return count + 1, total + tup["number"]

    def merge(self, one: Any, other: Any) -> Any:
        return one[0] + other[0], one[1] + other[1]

    def execute_window(self, window: Window, collector: BasicCollector) -> None:
        collector.emit((window.key, window.start, window.end, *window.value))


class Keep(StatefulBolt):
    """Counts each result."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        assert tup.source_component == "sums"
        key = json.dumps(tup.values)
        self.state[key] = self.state.get(key, 0) + 1


def windows(count: int, bolt: WindowedBolt) -> Topology:
    return wired(
        events=(Events(count), 2),
        pass_on=(PASS_ON, 2, "shuffle events"),
        sums=(bolt, 2, "fields pass_on user"),
        keep=(Keep(), 1, "global sums"),
    ).build()


def _results(found: Mapping[tuple[str, float, float], list[int]]) -> Counter[str]:
    return Counter(json.dumps((*window, len(numbers), sum(numbers))) for window, numbers in found.items())


def _events(count: int) -> list[tuple[str, int, int]]:
    return [(user, round(at * 1000), number) for user, at, number in map(event, range(count))] * 2


def sliding_results(count: int) -> Counter[str]:
    found = defaultdict(list)
    for user, at_ms, number in _events(count):
        for end_ms in range(at_ms - at_ms % SLIDE_MS + SLIDE_MS, at_ms + LENGTH_MS + 1, SLIDE_MS):
            found[user, (end_ms - LENGTH_MS) / 1000, end_ms / 1000].append(number)
    return _results(found)


def session_results(count: int) -> Counter[str]:
    found: dict[tuple[str, float, float], list[int]] = {}
    by_user = defaultdict(list)
    for user, at_ms, number in _events(count):
        by_user[user].append((at_ms, number))
    for user, events in by_user.items():
        session: list[tuple[int, int]] = []
        for each in [*sorted(events), (1 << 60, 0)]:
            if session and each[0] - session[-1][0] >= GAP_MS:
                found[user, session[0][0] / 1000, (session[-1][0] + GAP_MS) / 1000] = [one for _, one in session]
                session = []
            session.append(each)
    return _results(found)


# ---- sinks ----


def connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=60)
    connection.execute("CREATE TABLE IF NOT EXISTS events (user TEXT, at REAL, number INT)")
    return connection


def sinks(count: int, directory: Path, sql: SqlSink, sql_tasks: int) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("events", Events(count), parallelism=2)
    builder.set_bolt("pass_on", PASS_ON, parallelism=2).shuffle_grouping("events")
    builder.set_bolt("file", FileSink(directory / "out"), parallelism=2).fields_grouping("pass_on", "number")
    by_file = ParquetSink(directory / "parquet", commit_secs=0.1)
    builder.set_bolt("parquet", by_file, parallelism=2).fields_grouping("pass_on", "number")
    builder.set_bolt("sql", sql, parallelism=sql_tasks).fields_grouping("pass_on", "number")
    return builder.build()


def in_files(directory: Path) -> Counter[tuple[Any, ...]]:
    lines = [line for path in (directory / "out").iterdir() for line in path.read_text().splitlines()]
    return Counter(tuple(json.loads(line).values()) for line in lines)


def in_parquet(directory: Path) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in parquet.read_table(directory / "parquet").to_pylist())
