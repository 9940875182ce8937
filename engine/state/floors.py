"""What is settled, as a task with state follows it: by a look at the stores of the spouts, now and then.

It decides what may be forgotten, and how far event time has come (`engine.state.windows`). Nothing waits for it, and
it may be late: floors only rise.

Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Mapping

from squall.engine.api.context import TopologyContext
from squall.engine.state.lineage import Partition, Slots
from squall.engine.state.settled import Floor
from squall.engine.state.task_store import Reader

LOOK_NS = 50_000_000


class Floors:
    """The floors of all messages that may reach a task."""

    def __init__(self, context: TopologyContext, spouts: Mapping[str, Slots]) -> None:
        """`spouts`: whose messages may reach the task -> the slots of their first task."""
        self._readers = [] if context.state_root is None else [
            (Reader(context.directory_of(spout, str(index))), slots.of(index))
            for spout, slots in spouts.items() for index in range(len(context.component_tasks(spout)))
        ]
        self._floors: dict[Partition, Floor] = {}
        self._ended = [False] * len(self._readers)
        self._look_at_ns = 0

    @property
    def ended(self) -> bool:
        """Return True if every spout has nothing more to emit, and everything is settled."""
        return all(self._ended)

    def changed(self, now_ns: int) -> dict[Partition, Floor] | None:
        """All floors, if it is time to look and any has changed."""
        if now_ns < self._look_at_ns:
            return None
        self._look_at_ns = now_ns + LOOK_NS
        found = False
        for number, (reader, slots) in enumerate(self._readers):
            if (changed := reader.changed()) is not None:
                found = True
                floors, self._ended[number] = changed
                self._floors.update((slots.partition(each.local), each.floor) for each in floors)
        return self._floors if found else None

    def close(self) -> None:
        """Close the stores."""
        for reader, _ in self._readers:
            reader.close()
