"""The last 24 hours of each topology: rings of seconds, minutes and hours in one SQLite file.

Guarantees
    * A ring has a fixed number of rows for each topology, so the file is bounded: about 0.25 MB for a bolt and 5 MB for
      a spout, at most 25 MB with latencies of every size. A topology that is gone leaves after a day.
    * Whoever is killed when, the file stays whole. One that is damaged all the same, by a crash of the machine, is set
      aside, and a new one begun; a full disk costs samples. Either is one line in the log.
    * Counters are those since the topology was submitted, so any two rows give what happened between them. Another
      topology of the same name has another id, and thus rows of its own.

Thread: any; one at a time.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sqlite3
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from squall.engine.report.metrics import HISTOGRAM_BUCKETS, merge
from squall.engine.report.run_report import TaskReading
from squall.ui.sampler import Sample

log = logging.getLogger(__name__)

RINGS = {1: 3600, 60: 1440, 3600: 48}
"""Seconds between two rows -> number of rows."""
DAY_SECS = 86400.0
COUNTS = ("emitted", "transferred", "executed", "execute_ns", "acked", "failed")
_BUSY_SECS = 1.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS ring (
    topology TEXT, step INTEGER, slot INTEGER, at REAL, body BLOB, PRIMARY KEY (topology, step, slot)
) WITHOUT ROWID
"""


class ComponentCounts(msgspec.Struct, array_like=True):
    """What a component has done since its topology was submitted."""

    emitted: int = 0
    transferred: int = 0
    executed: int = 0
    execute_ns: int = 0
    acked: int = 0
    failed: int = 0
    """Of a spout: also those that it emitted again, and dead letters."""
    latencies: dict[int, int] = {}
    """Of a spout: bucket of `engine.report.metrics` -> messages."""

    def since(self, then: ComponentCounts) -> ComponentCounts:
        """What it has done since `then`; never less than nothing."""
        latencies = {bucket: count - then.latencies.get(bucket, 0) for bucket, count in self.latencies.items()}
        counts = {name: max(0, getattr(self, name) - getattr(then, name)) for name in COUNTS}
        return ComponentCounts(**counts, latencies={bucket: count for bucket, count in latencies.items() if count > 0})

    def histogram(self) -> list[int]:
        """The latencies as a row of all buckets."""
        row = [0] * HISTOGRAM_BUCKETS
        for bucket, count in self.latencies.items():
            row[bucket] = count
        return row


class Moment(msgspec.Struct, array_like=True):
    """A topology at a moment."""

    at_unix_secs: float
    version: int
    pending: int
    spouts: list[str]
    components: dict[str, ComponentCounts]

    def messages(self) -> ComponentCounts:
        """What all spouts together have done."""
        return total([self.components[name] for name in self.spouts])


def total(several: Sequence[ComponentCounts]) -> ComponentCounts:
    """The sum of components."""
    counts = {name: sum(getattr(one, name) for one in several) for name in COUNTS}
    latencies = Counter[int]()
    for one in several:
        latencies.update(one.latencies)
    return ComponentCounts(**counts, latencies=latencies)


def counts_of(readings: Sequence[TaskReading]) -> ComponentCounts:
    """The sum of tasks of one component."""
    counts = {count: sum(reading.counters[count] for reading in readings) for count in COUNTS}
    # A spout's account keeps them apart: with 8 dead letters and no retry its own `failed` is 0.
    counts["failed"] += sum(reading.counters["dead_letters"] for reading in readings)
    # A bolt has none, which need not be merged.
    histogram = merge(reading.histogram for reading in readings) if readings[0].kind == "spout" else []
    return ComponentCounts(**counts, latencies={bucket: count for bucket, count in enumerate(histogram) if count})


def row_of(sample: Sample) -> Moment:
    """What the rings keep of a look."""
    by_component: dict[str, list[TaskReading]] = {}
    for reading in sample.readings:
        by_component.setdefault(reading.component, []).append(reading)
    spouts = [name for name, readings in by_component.items() if readings[0].kind == "spout"]
    components = {name: counts_of(readings) for name, readings in by_component.items()}
    return Moment(sample.at_unix_secs, sample.version, sample.status.pending, spouts, components)


class History:
    """The rings in one file. No error of the file reaches the caller: its rows are missing then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._told = False
        self._newest: dict[tuple[str, int], int] = {}
        """Topology and step -> the last row written, in steps since 1970."""
        self._decoder = msgspec.msgpack.Decoder(Moment)

    def add(self, topology_id: str, sample: Sample) -> None:
        """Keep a look at a topology. One that waits for a slot has no counters."""
        if not sample.readings:
            return
        body = msgspec.msgpack.encode(row_of(sample))
        due = {step: int(sample.at_unix_secs // step) for step in RINGS}
        due = {step: number for step, number in due.items() if self._newest.get((topology_id, step)) != number}
        statements: list[tuple[str, Sequence[object]]] = [
            ("INSERT OR REPLACE INTO ring VALUES (?, ?, ?, ?, ?)",
             (topology_id, step, number % RINGS[step], sample.at_unix_secs, body))
            for step, number in due.items()
        ]
        if 3600 in due:
            statements.append((
                "DELETE FROM ring WHERE topology IN (SELECT topology FROM ring GROUP BY topology HAVING max(at) < ?)",
                (sample.at_unix_secs - DAY_SECS,),
            ))
        self._execute(statements)
        self._newest.update({(topology_id, step): number for step, number in due.items()})

    def rows(self, topology_id: str, until_unix_secs: float, secs: float, points: int) -> tuple[int, list[Moment]]:
        """The rows of the `secs` seconds until then, oldest first, at most about `points`, each the last of its step;
        and the step in seconds."""
        ring = next((step for step in RINGS if step * RINGS[step] >= secs), max(RINGS))
        step_secs = max(ring, math.ceil(secs / points))
        return step_secs, self._rows(
            "SELECT max(at), body FROM ring WHERE topology = ? AND step = ? AND at BETWEEN ? AND ?"
            " GROUP BY CAST(at / ? AS INTEGER) ORDER BY 1",
            topology_id, ring, until_unix_secs - secs, until_unix_secs, step_secs,
        )

    def at(self, topology_id: str, unix_secs: float) -> Moment | None:
        """The newest row that is at least as old; the oldest of all if none is; None if there are no rows."""
        query = "SELECT at, body FROM ring WHERE topology = ? AND at {} ? ORDER BY at {} LIMIT 1"
        found = self._rows(query.format("<=", "DESC"), topology_id, unix_secs)
        found = found or self._rows(query.format(">", "ASC"), topology_id, unix_secs)
        return found[0] if found else None

    def _rows(self, query: str, *values: object) -> list[Moment]:
        return [self._decoder.decode(body) for _, body in self._execute([(query, values)])]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
        self._database = None

    def _execute(self, statements: Sequence[tuple[str, Sequence[object]]]) -> list[tuple[float, bytes]]:
        """Execute statements as one transaction; returns the rows of the last."""
        with self._lock:
            try:
                if self._database is None:
                    self._open()
                assert self._database is not None
                with self._database:
                    for statement, values in statements:
                        rows = self._database.execute(statement, values).fetchall()
                self._told = False
                return rows if statements else []
            except (sqlite3.Error, OSError) as error:
                self._take(error)
                return []

    def _open(self) -> None:
        self._database = sqlite3.connect(self._path, timeout=_BUSY_SECS, check_same_thread=False)
        # A kill of this process loses nothing; a crash of the machine may cost the file.
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("PRAGMA journal_mode = PERSIST")
        self._database.execute(_SCHEMA)

    def _take(self, error: Exception) -> None:
        self._close()
        # Its subclasses are other trouble: no room, a lock held by another program.
        if type(error) is sqlite3.DatabaseError:
            aside = self._path.with_suffix(".damaged")
            with contextlib.suppress(OSError):
                self._path.rename(aside)
                # It belongs to that file: the new one must not be mended by it.
                self._path.with_name(f"{self._path.name}-journal").unlink(missing_ok=True)
            log.warning("%s is damaged (%s): it was set aside as %s, and history begins anew", self._path, error, aside)
        elif not self._told:
            log.warning("%s: no history is kept for now: %s", self._path, error)
            self._told = True
