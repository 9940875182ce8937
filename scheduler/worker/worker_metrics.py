"""Hands what the tasks of a topology did to its metrics consumers, each interval; counts what is emitted on each
stream, for the graph on the page and Storm's REST API.

Guarantees: the count of a stream is about a second old, and exact once the worker is idle. What serves consumers is in
the worker of slot 0 and reads shared memory and files alone, so other workers notice nothing. Whatever users' code
raises is told, once with a count, and ends no worker. What was counted before this worker began belongs to no interval.

Thread: `MetricsConsumers` has its own, of which the worker's loop calls `start` and `close`; for the rest, the loop.
"""

from __future__ import annotations

import importlib
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from squall.engine.api.config import Config
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.user_metrics import (
    Allocate,
    DataPoint,
    MetricReading,
    MetricsConsumer,
    TaskInfo,
    summarise,
)
from squall.engine.core.worker_core import WorkerCore
from squall.engine.flow.emitter import StreamOut
from squall.engine.foreign.text import text_of_error
from squall.engine.report.metrics import bucket_bounds
from squall.engine.report.run_report import TaskReading
from squall.ipc.board import Board
from squall.ipc.metric_file import STREAM, read_metrics
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import WorkerBoot
from squall.scheduler.records.topology_view import TopologyView

_CLOSE_SECS = 5.0
"""Longest wait for users' code at the end."""
COUNTS = {
    "__emit-count": "emitted", "__transfer-count": "transferred", "__execute-count": "executed",
    "__ack-count": "acked", "__fail-count": "failed",
}
"""Storm's names of what is counted, without its suffix for the stream."""

Report = Callable[[str, int, str], None]


class MetricsConsumers:
    """All consumers of one topology."""

    def __init__(self, run_dir: RunDir, boot: WorkerBoot, config: Config, report: Report) -> None:
        self._run_dir = run_dir
        self._boot = boot
        self._config = config
        self._report = report
        self._consumers: list[tuple[str, MetricsConsumer]] = []
        self._before: dict[tuple[int, str], float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics consumers", daemon=True)

    def start(self) -> None:
        """Begin the first interval, if there are consumers, and this is the worker for them."""
        if self._config.metrics_consumers and self._boot.slot_index == 0:
            self._thread.start()

    def close(self) -> None:
        """End them, and wait for that a moment."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECS)

    def _run(self) -> None:
        boot = self._boot
        context = {"name": boot.topology.name, "id": boot.topology.id, "worker": f"{boot.node}:{boot.port}"}
        for row in self._config.metrics_consumers:
            self._call(row["class"], partial(self._made, row, context))
        board = Board.attach(self._run_dir.board(boot.topology.id, boot.assignment.version))
        view = TopologyView(board, boot.assignment, boot.topology)
        self._points(view)
        while not self._stop.wait(self._config.metrics_interval_secs):
            for info, points in self._points(view):
                for name, consumer in self._consumers:
                    self._call(name, partial(consumer.handle_data_points, info, points))
        for name, consumer in self._consumers:
            self._call(name, consumer.cleanup)
        board.close()

    def _made(self, row: Mapping[str, Any], context: Mapping[str, Any]) -> None:
        module, _, name = str(row["class"]).rpartition(".")
        consumer = getattr(importlib.import_module(module), name)()
        consumer.prepare(self._config.for_components(), row["argument"], context)
        self._consumers.append((str(row["class"]), consumer))

    def _call(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            self._report(f"metrics consumer {name}", 0, text_of_error(error))

    def _points(self, view: TopologyView) -> list[tuple[TaskInfo, list[DataPoint]]]:
        """What each task did since the last call."""
        now, secs = int(time.time()), self._config.metrics_interval_secs
        users = self._users()
        rows = []
        for reading in view.readings():
            host, _, port = reading.worker.rpartition(":")
            values = {**self._built_in(reading), **users.get(reading.task, {})}
            info = TaskInfo(reading.component, reading.task, host, int(port), now, secs)
            rows.append((info, list(itertools.starmap(DataPoint, values.items()))))
        return rows

    def _built_in(self, reading: TaskReading) -> dict[str, Any]:
        counters = {key: self._since(reading.task, key, value) for key, value in reading.counters.items()}
        values: dict[str, Any] = {name: counters[key] for name, key in COUNTS.items()}
        if reading.kind != "spout":
            return {**values, "__execute-latency": counters["execute_ns"] / 1e6 / max(1, values["__execute-count"])}
        latencies = [
            (self._since(reading.task, f"latency {bucket}", count), sum(bucket_bounds(bucket)) / 2e3)
            for bucket, count in enumerate(reading.histogram) if count
        ]
        messages = sum(count for count, _ in latencies)
        return {**values, "__complete-latency": sum(count * ms for count, ms in latencies) / max(1, messages)}

    def _users(self) -> dict[int, dict[str, Any]]:
        """Task -> users' metrics: of a histogram count and mean. All lives of a task's worker count together."""
        tasks: dict[int, list[MetricReading]] = {}
        for reading in read_metrics(self._run_dir.metrics(self._boot.topology.id)):
            tasks.setdefault(reading.task, []).append(reading)
        return {
            task: {
                name: self._of_interval(task, name, value)
                for own in summarise(readings).values() for name, value in own.items()
            }
            for task, readings in tasks.items()
        }

    def _of_interval(self, task: int, name: str, value: Any) -> Any:
        """What became of a metric, summed up, since the last call; a gauge is as it is."""
        if isinstance(value, int):
            return self._since(task, f"user {name}", value)
        if task in value:
            return value[task]
        count = self._since(task, f"user {name}", value["count"])
        total = self._since(task, f"sum {name}", value["count"] * value["mean"])
        return {"count": count, "mean": total / max(1, count)}

    def _since(self, task: int, name: str, value: float) -> float:
        """How much it is more than at the last call."""
        before = self._before.get((task, name), 0)
        self._before[task, name] = value
        return max(0, value - before)


class StreamCounts:
    """The counters of one worker: one for each stream of a component, because it may have thousands of tasks."""

    def __init__(self, core: WorkerCore, allocate: Allocate) -> None:
        self._core = core
        self._rows: dict[tuple[str, str], tuple[memoryview[int], list[tuple[int, StreamOut]]]] = {}
        for task, emitter in core.emitters.items():
            for name, stream in emitter.streams.items():
                key = emitter.component, name
                if key not in self._rows:
                    self._rows[key] = allocate(emitter.component, task, STREAM, name, 8).cast("q"), []
                self._rows[key][1].append((task, stream))

    def publish(self) -> None:
        """Write down what was emitted so far."""
        spouts = self._core.spout_tasks
        for (_, name), (cell, streams) in self._rows.items():
            cell[0] = sum(
                # Spouts count all their emits together, and those on other streams once more there.
                spouts[task].collector.emitted - self._core.emitters[task].emitted
                if name == DEFAULT_STREAM and task in spouts else stream.emitted
                for task, stream in streams
            )
