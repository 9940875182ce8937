"""How much the components of a worker have emitted on each stream, published for the graph on the page and Storm's REST
API.

Guarantees: a count is about a second old, and exact once the worker is idle. Thread: the worker's loop.
"""

from __future__ import annotations

from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.user_metrics import Allocate
from squall.engine.core.worker_core import WorkerCore
from squall.engine.flow.emitter import StreamOut
from squall.ipc.metric_file import STREAM


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
