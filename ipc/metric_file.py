"""Users' metrics, and how much was emitted on each stream, in shared memory: one file per life of a worker, written by
its tasks, read by anyone on the machine.

Guarantees: a task's counts survive a kill of its worker; a reader sees old or new values of a cell and never a torn
one; the file takes room only for the metrics in it.

Layout: lines of JSON, one per metric, in `<worker>-<incarnation>.names` (appended, one write each); their cells one
after the other in `<worker>-<incarnation>.cells`.

Thread: the worker's loop allocates; the task's thread writes its metrics.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

from squall.engine.api.user_metrics import Counter, MetricReading
from squall.engine.errors import ComponentError
from squall.ipc.private import append_line, make_levels, read_lines

CELLS_BYTES = 4 << 20
"""Bytes for one worker's metrics: a thousand histograms, or half a million counters."""


STREAM = "stream"
"""Kind of the counters of emitted tuples, one for each stream of a component in a worker. They are no metrics of
users."""


class MetricFile:
    """The writing end. The files are made with the first metric."""

    def __init__(self, directory: Path, worker: int, incarnation: int) -> None:
        self._directory = directory
        self._stem = f"{worker}-{incarnation}"
        self._mapping: mmap.mmap | None = None
        self._fd = -1
        self._used = 0

    def allocate(self, component: str, task: int, kind: str, name: str, size: int) -> memoryview:
        """Zeroed memory of a new metric. ComponentError if the worker has no room for it."""
        if self._used + size > CELLS_BYTES:
            raise ComponentError(
                f"{component}[{task}] asks for {kind} {name!r}, but the metrics of this worker's tasks take all of the "
                f"{CELLS_BYTES >> 20} MiB there are; names with values in them (ids, words) are a common reason"
            )
        mapping = self._mapping or self._make()
        at = self._used
        # Extend the file first, so that a full disk is an error here and not a SIGBUS later.
        os.posix_fallocate(self._fd, at, size)
        self._used += size
        row = {"component": component, "task": task, "kind": kind, "name": name, "at": at, "size": size}
        append_line(self._path("names"), json.dumps(row | {"born": time.monotonic_ns()}))
        return memoryview(mapping)[at : at + size]

    def _path(self, suffix: str) -> Path:
        return self._directory / f"{self._stem}.{suffix}"

    def _make(self) -> mmap.mmap:
        make_levels(self._directory, 2)
        self._fd = os.open(self._path("cells"), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.truncate(self._path("cells"), CELLS_BYTES)  # by its name, which is in the error then
        self._mapping = mmap.mmap(self._fd, CELLS_BYTES)
        return self._mapping

    def close(self) -> None:
        """Close the descriptor. The mapping lasts as long as the process, because tasks hold their metrics."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_metrics(directory: Path) -> Iterator[MetricReading]:
    """Every metric of a topology's workers, dead ones included."""
    return (reading for reading in _read(directory) if reading.kind != STREAM)


def read_streams(directory: Path) -> dict[tuple[str, str], int]:
    """(component, stream) -> tuples emitted on it so far."""
    emitted: dict[tuple[str, str], int] = {}
    for reading in _read(directory):
        if reading.kind == STREAM:
            key = reading.component, reading.name
            emitted[key] = emitted.get(key, 0) + Counter(reading.memory).value
    return emitted


def _read(directory: Path) -> Iterator[MetricReading]:
    if not directory.is_dir():
        return
    for names in sorted(directory.glob("*.names")):
        rows = json.loads(b"[%s]" % b",".join(read_lines(names)))
        with names.with_suffix(".cells").open("rb") as file:
            cells = memoryview(file.read(max((row["at"] + row["size"] for row in rows), default=0)))
        for row in rows:
            memory = cells[row["at"] : row["at"] + row["size"]]
            yield MetricReading(row["component"], row["task"], row["kind"], row["name"], memory, row["born"])
