"""What is settled, as a task with state follows it: by a look at the records of the spouts, now and then.

It decides what may be forgotten, and how far event time has come (`engine.state.windowing.event_time`). Nothing waits
for it, and it may be late: what is settled only grows.

Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from squall.engine.api.context import TopologyContext
from squall.engine.state.records.lineage import Partition, PartitionNumbers
from squall.engine.state.records.ranges import Ranges
from squall.engine.state.records.record_store import (
    BUSY,
    ENDED,
    PARTITIONS,
    READERS,
    RECORDS_FILE,
    SHARED,
    TASKS,
    Reading,
    TaskState,
)
from squall.engine.state.task_store import Reader

LOOK_NS = 50_000_000


class Settled(NamedTuple):
    """What is settled of a partition."""

    ranges: Ranges
    """Of settled records, and dead letters."""
    buried: Ranges = Ranges()
    """The dead letters among them, which may be sent again."""
    begun: int = 0
    """Where the task that reads it has begun: holes below are not filled any more."""
    newest: int = -1
    """The highest number that was emitted."""

    @property
    def floor(self) -> int:
        """Return the number below which no record is under way."""
        return self.ranges.end_from(self.begun)

    def settles(self, number: int) -> bool:
        """Return True if the record of this number is settled."""
        return number in self.ranges and number not in self.buried

    def settles_all(self, first: int, last: int) -> bool:
        """Return True if all records from `first` to `last`, inclusive, are settled."""
        return self.ranges.end_from(first) > last and not self.buried.meets(first, last)


NOTHING = Settled(Ranges())


class FollowedSpout:
    """A spout, as its records tell."""

    def __init__(self, directory: str, numbers: PartitionNumbers, tasks: int) -> None:
        self.numbers, self._tasks = numbers, tasks
        self.reader = Reader(directory, RECORDS_FILE)
        self.settled: dict[Partition, Settled] = {}
        self.readings: dict[Partition, list[Reading]] = {}
        """Of each partition, how far the tasks are that read it."""
        self.tasks = [TaskState(BUSY, False)] * tasks
        self._version = -1

    def look(self) -> bool:
        """Look whether anything has changed; return True if so."""
        changed = self.reader.changed(PARTITIONS.replace("?", str(self._version)), READERS, TASKS)
        if changed is None:
            return False
        partitions, readings, tasks = changed
        for number, settled, buried, begun, newest, version in partitions:
            view = Settled(Ranges.unpacked(settled), Ranges.unpacked(buried), begun, newest)
            self.settled[self.numbers.partition(number)] = view
            self._version = max(self._version, version)
        self.readings = {}
        for number, task, at, is_read, lowest in readings:
            if task < self._tasks:  # those above are of an earlier life with more tasks
                reading = Reading(at, bool(is_read), lowest)
                self.readings.setdefault(self.numbers.partition(number), []).append(reading)
        for task, activity, declares in tasks:
            if task < self._tasks:
                self.tasks[task] = TaskState(activity, bool(declares))
        return True

    @property
    def ended(self) -> bool:
        """Return True if every task is exhausted, and every record is settled."""
        return all(task.activity == ENDED for task in self.tasks)


class Floors:
    """What is settled of all records that may reach a task."""

    def __init__(self, context: TopologyContext, spouts: Mapping[str, PartitionNumbers]) -> None:
        """`spouts`: whose records may reach the task."""
        self.spouts = [] if context.state_root is None else [
            FollowedSpout(context.directory_of(spout, SHARED), numbers, len(context.component_tasks(spout)))
            for spout, numbers in spouts.items()
        ]
        self.settled: dict[Partition, Settled] = {}
        self._look_at_ns = 0

    def changed(self, now_ns: int) -> bool:
        """Look, if it is time; return True if anything has changed."""
        if now_ns < self._look_at_ns:
            return False
        self._look_at_ns = now_ns + LOOK_NS
        changed = [spout for spout in self.spouts if spout.look()]
        for spout in changed:
            self.settled.update(spout.settled)
        return bool(changed)

    def close(self) -> None:
        """Close the stores."""
        for spout in self.spouts:
            spout.reader.close()
