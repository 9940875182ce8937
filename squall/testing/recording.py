"""Records the tuples that components emit and the messages that failed, without an extra bolt: nothing in the topology
changes.

Guarantees: every tuple that an emit accepted is recorded once, in the order of the emits, with any number of
subscribers (even none), on direct streams too. Task ids, groupings and results of `emit` stay as they are.

Relies on: collectors place their tuples through `StreamOut` where it shows no way past it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from squall.engine.api.columns import Columns
from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import Failure
from squall.engine.api.hooks import SpoutAckInfo, SpoutFailInfo, TaskHook
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.topology import Topology
from squall.engine.flow.emitter import UNNAMED, Emitter, Route, Start, StreamOut
from squall.engine.flow.groupings import Values
from squall.engine.foreign.identity import key_of


def stream_key(component: str, stream: str) -> str:
    """The name of a stream: its component for the default stream, else "component/stream"."""
    return component if stream == DEFAULT_STREAM else f"{component}/{stream}"


class Recorder:
    """The emitted tuples, by stream, and the messages that failed."""

    def __init__(self, topology: Topology) -> None:
        self.emitted: dict[str, list[Values]] = {
            stream_key(spec.id, stream): [] for spec in topology.components.values() for stream in spec.outputs
        }
        self.failed: dict[Any, tuple[str, Any, Failure]] = {}
        """Task and message -> (spout, message id, failure), until the message is acked."""

    def of(self, component: str, stream: str) -> Callable[[Values], None]:
        """The function to call with each tuple of one stream."""
        return self.emitted[stream_key(component, stream)].append


class AnswerHook(TaskHook):
    """Notes the failures of one spout task that no ack follows."""

    def __init__(self, recorder: Recorder, context: TopologyContext) -> None:
        self._failed = recorder.failed
        self._spout = context.component_id

    def spout_ack(self, info: SpoutAckInfo) -> None:
        self._failed.pop((info.task_id, key_of(info.message_id)), None)

    def spout_fail(self, info: SpoutFailInfo) -> None:
        self._failed[info.task_id, key_of(info.message_id)] = self._spout, info.message_id, info.failure


class _RecordedStream(StreamOut):
    """A stream that passes each tuple to a recorder."""

    __slots__ = ("_record",)

    def __init__(self, stream: StreamOut, record: Callable[[Values], None]) -> None:
        super().__init__(stream.who, stream.shape, stream.routes, stream.outbox)
        self._record = record

    def append(self, values: Values, key: object, start: Start, task: Any = UNNAMED) -> list[int]:
        tasks = super().append(values, key, start, task)
        self._record(values)
        return tasks

    def append_batch(self, rows: Columns, *given: Any) -> None:
        super().append_batch(rows, *given)
        for row in rows:
            self._record(row)

    def only_route(self) -> Route | None:
        """None: who goes past `append` is not recorded."""
        return None


def record_streams(emitter: Emitter, recorder: Recorder) -> None:
    """Record every stream of one task. Call it before the task's collector is made."""
    streams: dict[str, Any] = emitter.streams
    for name, stream in emitter.streams.items():
        streams[name] = _RecordedStream(stream, recorder.of(emitter.component, name))
