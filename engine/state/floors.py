"""What is settled, as a task with state follows it: by a look at the stores of the spouts, now and then.

It decides what may be forgotten, and how far event time has come (`engine.state.windows`). Nothing waits for it, and
it may be late: floors only rise.

Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Mapping

from squall.engine.api.context import TopologyContext
from squall.engine.state.lineage import Partition, Slots
from squall.engine.state.settled import Floor, StoredFloor
from squall.engine.state.task_store import BUSY, ENDED, FLOORS, READ_ACTIVITY, Reader, floors_of

LOOK_NS = 50_000_000


class FollowedSpout:
    """One task of a spout, as its store tells."""

    def __init__(self, directory: str, slots: Slots) -> None:
        self.slots = slots
        self.ended = False
        """True if it is exhausted, and every message is settled."""
        self.reader = Reader(directory)
        self._quiet_since: int | None = None

    def look(self, now_ns: int) -> list[StoredFloor]:
        """Its floors, if anything has changed."""
        changed = self.reader.changed(FLOORS, READ_ACTIVITY)
        if changed is None:
            return []
        floors, activities = changed
        activity = activities[0][0] if activities else BUSY
        self.ended = activity == ENDED
        self._quiet_since = None if activity == BUSY else now_ns
        return floors_of(floors)

    def quiet_for(self, now: int) -> int:
        """How long it has had no message open."""
        return 0 if self._quiet_since is None else now - self._quiet_since


class Floors:
    """The floors of all messages that may reach a task."""

    def __init__(self, context: TopologyContext, spouts: Mapping[str, Slots]) -> None:
        """`spouts`: whose messages may reach the task -> the slots of their first task."""
        self.sources = [] if context.state_root is None else [
            FollowedSpout(context.directory_of(spout, str(index)), slots.of(index))
            for spout, slots in spouts.items() for index in range(len(context.component_tasks(spout)))
        ]
        self.all: dict[Partition, Floor] = {}
        self._look_at_ns = 0

    def changed(self, now_ns: int) -> bool:
        """Look, if it is time; return True if any has changed."""
        if now_ns < self._look_at_ns:
            return False
        self._look_at_ns = now_ns + LOOK_NS
        found = False
        for source in self.sources:
            for each in source.look(now_ns):
                found = True
                self.all[source.slots.partition(each.local)] = each.floor
        return found

    def close(self) -> None:
        """Close the stores."""
        for source in self.sources:
            source.reader.close()
