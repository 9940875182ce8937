"""FixedSpout: a spout that emits a fixed list.

Guarantees: every tuple is emitted, in the order of the list, with its position as message id, and again after each
failure until it is acked. Several tasks take the list's items in turn. After its worker's death a task begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from squall.engine.api.replaying import ReplayingSpout
from squall.engine.api.stream import DEFAULT_STREAM, Emit, Outputs

if TYPE_CHECKING:
    from squall.engine.api.context import TopologyContext


class FixedSpout(ReplayingSpout):
    """Emits `tuples`: a list for the default stream, or stream name -> list, one after the other."""

    first_delay_secs = 0.0

    def __init__(self, outputs: Outputs, tuples: Iterable[Any] | Mapping[str, Iterable[Any]]) -> None:
        self.outputs = outputs
        streams = tuples if isinstance(tuples, Mapping) else {DEFAULT_STREAM: tuples}
        self._items = [(stream, item) for stream, items in streams.items() for item in items]

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._mine = range(context.task_index, len(self._items), len(context.component_tasks(context.component_id)))

    def read(self) -> Iterator[Any]:
        for position in self._mine:
            stream, item = self._items[position]
            yield position, Emit(item, stream)
