"""The spout that emits the results of windows: what a bolt with windows has committed in its store.

It reads the store of the bolt's task with its own index, wherever that runs, and keeps no file: what is acked is its
floor (`engine.state.settled`), below which the bolt removes results.

Guarantees: each result is emitted until it is acked or a dead letter, with the same message id after every death.

Thread: the task's.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import Any

from squall.engine.api.context import TopologyContext
from squall.engine.api.replaying import Record, ReplayingSpout
from squall.engine.api.stream import Emit, Outputs
from squall.engine.state.lineage import RESULTS
from squall.engine.state.task_store import CLOSED, FLOORS, Reader, floors_of

_AT_ONCE = 256


class ResultsSpout(ReplayingSpout):
    """Emits the results of one component."""

    def __init__(self, outputs: Outputs) -> None:
        self.outputs = outputs

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        own = Reader(context.state_dir)
        found = own.changed(FLOORS)
        own.close()
        self._next = max((each.floor.number for each in floors_of(found[0])), default=0) if found else 0
        bolt = context.component_id.removesuffix(RESULTS)
        self._reader = Reader(context.directory_of(bolt, str(context.task_index)))
        self._is_closed = False

    def read(self) -> Iterator[Record | None]:
        query = f"SELECT number, content FROM results WHERE number >= {{}} ORDER BY number LIMIT {_AT_ONCE}"
        rows: list[Any] = []
        while True:
            found = self._reader.changed(query.format(self._next), f"SELECT value FROM meta WHERE name = '{CLOSED}'")
            if found is not None:
                rows, closed = found
                self._is_closed = bool(closed and closed[0][0]) and not rows
            for number, content in rows:
                self._next = number + 1
                values, stream, task = pickle.loads(content)
                yield number, Emit(values, stream, task)
            if rows:
                self._reader.again()
                rows = []
            else:
                yield None

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        """True if no window is open, no input can come, and every result is acked."""
        return self._is_closed and not self.kept

    def close(self) -> None:
        self._reader.close()
