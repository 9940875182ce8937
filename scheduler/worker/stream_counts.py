"""How much the tasks of a worker have emitted on each stream, published for the graph on the page and Storm's REST API.

Guarantees: a count is about a second old, and exact once the worker is idle. Thread: the worker's loop.
"""

from __future__ import annotations

from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.user_metrics import Allocate
from squall.engine.core.worker_core import WorkerCore
from squall.engine.flow.emitter import StreamOut
from squall.ipc.metric_file import STREAM


class StreamCounts:
    """The counters of one worker."""

    def __init__(self, core: WorkerCore, allocate: Allocate) -> None:
        self._core = core
        self._rows: list[tuple[int, str, StreamOut, memoryview[int]]] = [
            (task, name, stream, allocate(emitter.component, task, STREAM, name, 8).cast("q"))
            for task, emitter in core.emitters.items()
            for name, stream in emitter.streams.items()
        ]

    def publish(self) -> None:
        """Write down what was emitted so far."""
        spouts = self._core.spout_tasks
        for task, name, stream, cell in self._rows:
            if name == DEFAULT_STREAM and task in spouts:
                # Spouts count all their emits together, and those on other streams once more there.
                cell[0] = spouts[task][1].emitted - self._core.emitters[task].emitted
            else:
                cell[0] = stream.emitted
