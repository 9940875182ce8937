"""How far event time has come, as far as it is sure: from what is settled.

::

    partition 0 │ 10:00 │ 10:02 │ 10:01 │ open │            time: 10:02          least of all, less the lag:
    partition 1 │ 10:05 │ 10:07 │ open                      time: 10:07          the watermark, 10:02
    partition 2 │ (read to its end, for some seconds)       holds up nothing

A record is settled when all of its tuples are in the states behind it, so that no tuple of it can come any more. The
newest timestamp among the settled records of a partition is its time. Other systems take the newest timestamp that has
arrived: there, a tuple that is replayed after a death may be late. Here nothing is that was not already late in its
partition.

A partition holds up time as long as a task reads it, or a record of it is open. It does not once its source says that
it has ended, or that everything there is has been read, for `AT_END_NS`; nor after the user's idle timeout.

Each task sees a share of the tuples only. So the tasks of a bolt tell each other the times of partitions
(`SharedTimes`), and time comes to a task without a tuple.

Guarantees: the watermark never falls. Pure, but for `SharedTimes`. Thread: the task's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from squall.engine.state.records.floors import NOTHING, FollowedSpout, Settled
from squall.engine.state.records.lineage import Partition
from squall.engine.state.records.record_store import ENDED, QUIET, Reading, SharedFile, TaskState
from squall.engine.state.task_store import Reader

TIME_KEY = ("time",)
"""Of the state, where it is kept."""
END = 1 << 62
"""A watermark after all timestamps, in nanoseconds."""
AT_END_NS = 5_000_000_000
"""A partition that is read to its end holds up time for so long: what is on its way to it is not late by."""
LOST_NS = 60_000_000_000
"""A record that no task has open for so long is not waited for: enough for a broker to deliver it again."""
STANDS = ("__event_time", "__event_time_since", "__event_time_source", "__event_time_place")
"""Gauges of a task: its watermark, in seconds; since when it stands there, in seconds of the monotonic clock, 0 once it
has ended; what it waits for: the first task of a spout, 0 if for none, and the number of a partition among those of
that spout, or ~index of a task that reads none."""
_MOST_MARKS = 64
"""Of a partition: of more, every second one goes, which only delays time."""


class Heard(NamedTuple):
    """What the tasks of a bolt know of a partition together."""

    time: int = -END
    """The newest timestamp among its settled records."""
    seen: int = 0
    """A number that grows with each batch that has tuples of it."""


class _Rest(NamedTuple):
    """Since when nothing has come of a partition, or of a task that has not emitted."""

    since: int
    newest: int
    """The highest number at that time."""
    seen: int


class EventTime:
    """The watermark of one task."""

    def __init__(self, lag: int, idle: int | None, kept: Mapping[str, Any]) -> None:
        """`kept`: what `to_keep` gave. Times are in nanoseconds."""
        self._lag, self._idle = lag, idle
        self.watermark: int = kept.get("watermark", -END)
        self.times: dict[Partition, int] = dict(kept.get("times", {}))
        """The newest timestamp among the settled records of a partition, as far as they came to this task."""
        self._marks: dict[Partition, list[tuple[int, int]]] = {
            partition: list(marks) for partition, marks in kept.get("marks", {}).items()
        }
        """(number, newest timestamp up to there), ascending, of those that are not settled."""
        self.seen: dict[Partition, int] = {}
        """Batches with tuples of a partition."""
        self._at_end: dict[Any, int] = {}
        """Since when a partition, or a task without one, is read to its end."""
        self._resting: dict[Any, _Rest] = {}
        self._first_open: dict[Partition, tuple[int, int, int]] = {}
        """The lowest record that is not settled, since when nobody has it open, and the highest at that time."""
        self._passed: dict[Partition, int] = {}
        """Where to look for the next one, after those that are lost."""
        self.waits_for = -1, 0
        """What held up time most at the last look: the number of its source, -1 if nothing did; and its partition, or
        ~index of a task that reads none."""

    def to_keep(self) -> dict[str, Any]:
        """Return what a successor needs."""
        return {"watermark": self.watermark, "times": dict(self.times), "marks": dict(self._marks)}

    def saw(self, partition: Partition, number: int, time: int) -> None:
        """Note the highest number of a partition in a batch, and the newest timestamp in it."""
        self.seen[partition] = self.seen.get(partition, 0) + 1
        marks = self._marks.setdefault(partition, [])
        if not marks or number > marks[-1][0]:
            marks.append((number, max(time, marks[-1][1]) if marks else time))
            if len(marks) > _MOST_MARKS:
                del marks[-3::-2]
        else:
            # A lower number with a newer time counts when the highest is settled.
            marks[-1] = marks[-1][0], max(time, marks[-1][1])

    def heard(self) -> dict[Partition, Heard]:
        """Return what this task knows of partitions."""
        return {
            partition: Heard(self.times.get(partition, -END), self.seen.get(partition, 0))
            for partition in self.times.keys() | self.seen.keys()
        }

    def settle(self, settled: Mapping[Partition, Settled]) -> None:
        """Take note of what is settled."""
        for partition, marks in self._marks.items():
            floor = self._floor(partition, settled.get(partition, NOTHING)) if marks else 0
            while marks and marks[0][0] < floor:
                time = marks.pop(0)[1]
                self.times[partition] = max(time, self.times.get(partition, -END))

    def look(self, sources: Sequence[FollowedSpout], heard: Mapping[Partition, Heard], now: int) -> int:
        """Bring the watermark up to date; return it. `heard`: what all tasks know of partitions."""
        if all(source.ended for source in sources):
            self.watermark = END
            return END
        holding, newest = list[tuple[int, tuple[int, int]]](), -END
        for number, source in enumerate(sources):
            if source.ended:
                continue
            for partition in source.settled.keys() | source.readings.keys():
                known = heard.get(partition, Heard())
                newest = max(newest, known.time)
                if self._holds_up(partition, source, known, now):
                    holding.append((known.time, (number, partition)))
            holding += [
                (-END, (number, ~task)) for task, state in enumerate(source.tasks)
                if self._task_holds_up((number, task), state, now)
            ]
        # If nothing holds it up, all that has come counts, or its windows would wait for the next record.
        least, self.waits_for = min(holding, default=(newest, (-1, 0)))
        self.watermark = max(self.watermark, least - self._lag)
        return self.watermark

    def _holds_up(self, partition: Partition, source: FollowedSpout, heard: Heard, now: int) -> bool:
        settled, readings = source.settled.get(partition, NOTHING), source.readings.get(partition, ())
        self._pass_lost(partition, settled, readings, now)
        floor = self._floor(partition, settled)
        is_open = floor <= settled.newest
        if not readings and not is_open:
            return False
        is_behind = any(-1 < reading.at < settled.newest for reading in readings)
        is_read = not is_open and not is_behind and all(reading.is_read for reading in readings)
        rest = _Rest(now, settled.newest, heard.seen)
        return not (self._is_at_end(partition, is_read, now) or self._is_idle(partition, is_behind, floor, rest))

    def _floor(self, partition: Partition, settled: Settled) -> int:
        """Return the number below which no record of a partition is under way."""
        passed = self._passed.get(partition, 0)
        return settled.floor if passed <= settled.begun else settled.ranges.end_from(passed)

    def _pass_lost(self, partition: Partition, settled: Settled, readings: Sequence[Reading], now: int) -> None:
        """Pass a record that nobody has had open for long: the task that read it died before it could tell that it was
        done, or it was given to somebody else."""
        floor = self._floor(partition, settled)
        number, since, newest = self._first_open.setdefault(partition, (floor, now, settled.newest))
        lowest = min((reading.open for reading in readings if reading.open > -1), default=newest + 1)
        if number != floor or floor > settled.newest or lowest <= floor:
            self._first_open[partition] = floor, now, settled.newest
        elif now - since >= LOST_NS:
            self._passed[partition] = min(lowest, newest + 1)

    def _task_holds_up(self, task: tuple[int, int], state: TaskState, now: int) -> bool:
        """Return True if a task of a spout of which no partition is known holds up time."""
        if state.declares or state.activity == ENDED:
            return False
        is_quiet = state.activity == QUIET
        return not (self._is_at_end(task, is_quiet, now) or self._is_idle(task, not is_quiet, 0, _Rest(now, -1, 0)))

    def _is_at_end(self, holder: Any, is_read: bool, now: int) -> bool:
        """Return True if everything there is has been read for long."""
        if not is_read:
            self._at_end.pop(holder, None)
            return False
        return now - self._at_end.setdefault(holder, now) >= AT_END_NS

    def _is_idle(self, holder: Any, is_busy: bool, floor: int, rest: _Rest) -> bool:
        """Return True if no tuple has come for the user's idle timeout, and nothing that was open then is open still.
        `rest`: what it would be from now on."""
        before = self._resting.setdefault(holder, rest)
        if is_busy or rest.seen != before.seen:
            self._resting[holder] = rest
            return False
        return self._idle is not None and rest.since - before.since >= self._idle and floor > before.newest


# ---- between tasks ----

_TIMES = """CREATE TABLE IF NOT EXISTS times (
    partition INTEGER, task INTEGER, time INTEGER, seen INTEGER, PRIMARY KEY (partition, task)) WITHOUT ROWID"""


class SharedTimes(SharedFile):
    """What all tasks of a bolt know of partitions: a SQLite file in the directory that they share. It only carries what
    each task has in its own state; lost, it is written anew. What a task has told is seen by the others at their next
    look."""

    def __init__(self, directory: str, task: int, shape: int) -> None:
        """`directory`: the one that the tasks share; `shape`: of the topology, by which partitions have their numbers.
        """
        file = f"times-{shape:x}.db"
        # A power loss may take commits, and damages nothing.
        super().__init__(os.path.join(directory, file), "the times of partitions", "NORMAL", _TIMES)
        self._task, self._reader = task, Reader(directory, file)
        self._told: dict[Partition, Heard] = {}
        self.heard: dict[Partition, Heard] = {}

    def exchange(self, own: Mapping[Partition, Heard]) -> Mapping[Partition, Heard]:
        """Tell what this task knows; return what all know together."""
        told, task = self._told, self._task
        news = [(partition, task, *heard) for partition, heard in own.items() if heard != told.get(partition)]
        if news:
            with self.changing() as db:
                db.executemany("INSERT OR REPLACE INTO times VALUES (?, ?, ?, ?)", news)
            self._told = dict(own)
        changed = self._reader.changed("SELECT partition, max(time), sum(seen) FROM times GROUP BY partition")
        if changed is not None:
            self.heard = {partition: Heard(time, seen) for partition, time, seen in changed[0]}
        return self.heard

    def close(self) -> None:
        super().close()
        self._reader.close()
