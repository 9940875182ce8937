"""Decides which topologies of a node have a warm spare: a process that has loaded the topology's code, opens nothing,
and becomes the worker when one dies.

Guarantees
    * A spare is made only when all workers of its topology here have been ready for a while: its imports do not take
      the processor from workers that start, and a run of a second has none.
    * A topology that has no work here any more has no spare.
    * A spare that cannot be made, or dies, is made again ever more rarely, until one is of use. It is told once.

Relies on: `look` being called about once a second. Pure, like the slots.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from squall.engine.foreign.text import plain
from squall.scheduler.common.messages import TopologyRecord
from squall.scheduler.supervisor.slot import Slot
from squall.scheduler.supervisor.worker_life import SlotState

REST_SECS = 1.0
"""Time from the moment when a topology's workers are ready until it gets a spare."""
_DELAY_FACTOR, _MAX_DELAY_SECS = 4.0, 3600.0

log = logging.getLogger(__name__)


class Spares:
    """The spares of one node; topologies go by their ids. Thread: the supervisor's loop."""

    def __init__(self) -> None:
        self._kept: set[str] = set()
        """Topologies that have a spare, or will soon."""
        self._ready_since: dict[str, float] = {}
        """Since when all workers of a topology have been ready."""
        self._failures: dict[str, tuple[int, float]] = {}
        """How many spares in a row were of no use, and when the next one may be made."""

    def look(self, slots: Collection[Slot], now: float) -> list[TopologyRecord] | None:
        """All topologies that are to have a spare from now on; None: the same as before."""
        works = [(slot, slot.target.topology) for slot in slots if slot.target is not None]
        held = {record.id: record for _, record in works}
        restless = {
            record.id for slot, record in works
            if slot.state is not SlotState.RUNNING or not record.conf.get("warm_spare")
        }
        self._ready_since = {each: self._ready_since.get(each, now) for each in held.keys() - restless}
        self._failures = {each: failed for each, failed in self._failures.items() if each in held}
        due = {
            each for each, since in self._ready_since.items()
            if now >= max(since + REST_SECS, self._failures.get(each, (0, now))[1])
        }
        kept, self._kept = self._kept, (self._kept & held.keys()) | due
        return None if kept == self._kept else [held[each] for each in sorted(self._kept)]

    def ended(self, topology_id: str, reason: str, now: float) -> None:
        """A spare is no more. No reason: it became a worker, or made room for one."""
        self._kept.discard(topology_id)
        self._ready_since.pop(topology_id, None)
        if not reason:
            self._failures.pop(topology_id, None)
            return
        count = self._failures.get(topology_id, (0, now))[0] + 1
        self._failures[topology_id] = count, now + min(_MAX_DELAY_SECS, _DELAY_FACTOR**count)
        if count == 1:
            log.warning("%s has no spare, so a replacement loads its code first: %s", plain(topology_id), plain(reason))

    def all_ended(self) -> None:
        """The forking parent has ended, and its spares with it."""
        self._kept.clear()
        self._ready_since.clear()
