"""How far event time has come, as far as it is sure: from what is settled.

A message is settled when all of its tuples are in the states behind it, so that no tuple of it can come any more. The
newest timestamp among the settled messages of a source, less the lag, is its watermark; that of the task is the least
of all. Other systems take the newest timestamp that has arrived: there, a tuple that comes again after a death may
be late. Here nothing is, that was not already late in its source.

A source holds up the others unless it has ended, or has had no message open for the idle timeout; so does each of its
partitions of which a tuple came within that time. The time of a source stands still while none of its messages are
settled: what is under way, or read again after a death, is waited for.

Guarantees: the watermark never falls. Pure. Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from squall.engine.state.lineage import Partition, Slots
from squall.engine.state.settled import NO_FLOOR, Floor

END = 1 << 62
"""A watermark after all timestamps, in nanoseconds."""


class EventSource(Protocol):
    """A spout's task, as `engine.state.floors` follows it."""

    slots: Slots
    ended: bool

    def quiet_for(self, now: int) -> int:
        """How long it has had no message open."""


class EventTime:
    """The watermark of one task."""

    def __init__(self, lag: int, idle: int, kept: Mapping[str, Any], now: int) -> None:
        """`kept`: what `to_keep` gave. Times are in nanoseconds; `now` is of the clock of `look`."""
        self._lag, self._idle, self._began = lag, idle, now
        self.watermark: int = kept.get("watermark", -END)
        self._newest: dict[Partition, int] = dict(kept.get("newest", {}))
        """Newest timestamp of the settled messages."""
        self._marks: dict[Partition, list[tuple[int, int]]] = {
            partition: list(marks) for partition, marks in kept.get("marks", {}).items()
        }
        """(message, newest timestamp up to there), ascending, of those that are not settled."""
        self._moved: dict[Partition, int] = dict.fromkeys(self._marks, now)
        """When a tuple came."""
        self._floors: dict[Partition, int] = {}
        self._rose: dict[int, int] = {}
        """Slot of a source -> when a message of it was settled last."""

    def to_keep(self) -> dict[str, Any]:
        """What a successor needs."""
        return {"watermark": self.watermark, "newest": dict(self._newest), "marks": dict(self._marks)}

    def saw(self, partition: Partition, message: int, time: int, now: int) -> None:
        """Note the newest message of a partition in a batch, and the newest timestamp in it."""
        self._moved[partition] = now
        marks = self._marks.setdefault(partition, [])
        if not marks or message > marks[-1][0]:
            marks.append((message, max(time, marks[-1][1]) if marks else time))
        else:
            # An older message with a newer time counts when the newest is settled.
            marks[-1] = marks[-1][0], max(time, marks[-1][1])

    def look(self, floors: Mapping[Partition, Floor], sources: Sequence[EventSource], now: int) -> int:
        """Bring the watermark up to date; return it."""
        for partition, floor in floors.items():
            if self._floors.get(partition) != floor.number:
                self._floors[partition] = floor.number
                self._rose[partition % sources[0].slots.tasks] = now
        for partition, marks in self._marks.items():
            settled = floors.get(partition, NO_FLOOR).number
            while marks and marks[0][0] < settled:
                time = marks.pop(0)[1]
                self._newest[partition] = max(time, self._newest.get(partition, -END))
        if all(source.ended for source in sources):
            self.watermark = END
            return END
        times = []
        for source in sources:
            if not source.ended and source.quiet_for(now) < self._idle:
                times += self._times_of(source.slots, now)
        if times:
            self.watermark = max(self.watermark, min(times) - self._lag)
        return self.watermark

    def _times_of(self, slots: Slots, now: int) -> list[int]:
        """How far the partitions of a source have come that hold up the others."""
        its = [partition for partition in self._moved if partition % slots.tasks == slots.slot]
        rose = self._rose.get(slots.slot, self._began)
        active = [one for one in its if self._marks.get(one) or rose - self._moved[one] < self._idle]
        if not its and now - self._began < self._idle:
            return [-END]
        return [self._newest.get(partition, -END) for partition in active]
