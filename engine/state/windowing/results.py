"""The spout that emits the results of windows: what a bolt with windows has committed in its store.

It reads the store of the bolt's task with its own index, wherever that runs, and keeps no file: what is settled of its
records is what the bolt removes. The id of a result is (origin, number): the store in which it was made, and its number
there, so that a result that moves to another task is the same one.

Guarantees: each result is emitted until it is acked or a dead letter, with the same message id after every death.

Thread: the task's.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import Any

from squall.engine.api.context import TopologyContext
from squall.engine.api.replaying import Record, ReplayingSpout
from squall.engine.api.stream import Emit
from squall.engine.state.records.lineage import RESULTS
from squall.engine.state.records.ranges import Ranges
from squall.engine.state.records.record_store import BUSY, ENDED, RECORDS_FILE
from squall.engine.state.records.settled import PARTITION
from squall.engine.state.task_store import ACTIVITY, Reader

_AT_ONCE = 256
_RESULTS = f"SELECT place, origin, number, content FROM results WHERE place > {{}} ORDER BY place LIMIT {_AT_ONCE}"
_META = f"SELECT name, value FROM meta WHERE name IN ('id', 'tasks', '{ACTIVITY}')"


class ResultsSpout(ReplayingSpout):
    """Emits the results of one component."""

    record_identity = PARTITION

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        own = Reader(context.shared_state_dir, RECORDS_FILE)
        changed = own.changed("SELECT name, settled FROM partitions")
        own.close()
        self._settled = {name: Ranges.unpacked(settled) for name, settled in changed[0]} if changed else {}
        """What earlier lives have settled, and the bolt may not have removed yet."""
        bolt = context.component_id.removesuffix(RESULTS)
        self._reader = Reader(context.directory_of(bolt, str(context.task_index)))
        self._tasks = len(context.component_tasks(context.component_id))
        self._meta: dict[str, Any] = {}
        self._origins: set[str] = set()
        self._is_read = False

    def read(self) -> Iterator[Record | None]:
        place, rows = -1, list[Any]()
        while True:
            query = _RESULTS.format(place)
            changed = self._reader.changed(query, _META)
            # Until the first task of the bolt has dealt it, the store may be of another number of tasks.
            if changed is not None and dict(changed[1]).get("tasks") == self._tasks:
                rows, self._meta = changed[0], dict(changed[1])
                self._origins |= {self._meta["id"], *(origin for _, origin, _, _ in rows)}
                self._is_read = not rows
            for _, origin, number, content in rows:
                if number in self._settled.get(repr((origin,)), ()):
                    continue
                values, stream, task = pickle.loads(content)
                yield (origin, number), Emit(values, stream, task)
            if rows:
                place, rows = rows[-1][0], []
                self._reader.again()
            else:
                yield None

    def partitions(self) -> Mapping[tuple[Any, ...], bool] | None:
        # While a window is open, its result is still to come.
        is_read = self._is_read and self._meta.get(ACTIVITY) != BUSY
        return {(origin,): is_read for origin in self._origins} or None

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        """True if no window is open, no input can come, and every result is acked."""
        return self._is_read and self._meta.get(ACTIVITY) == ENDED and not self.kept

    def close(self) -> None:
        self._reader.close()
