"""Decides which topologies of a node have a warm spare: a process that has loaded the topology's code, opens nothing,
and becomes the worker when one dies.

Guarantees
    * A spare is made only when all workers of its topology here have been ready for a while: its imports do not take
      the processor from workers that start, and a run of a second has none.
    * A topology that has no work here any more has no spare.
    * A spare that cannot be made, or dies, is made again: once at once, then ever more rarely. It is told once.

Relies on: `look` being called about once a second. Pure, like the slots.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Collection

from squall.engine.foreign.text import plain
from squall.scheduler.common.messages import TopologyRecord
from squall.scheduler.common.restart_policy import RestartPolicy, RestartPolicyOptions, StartAgain
from squall.scheduler.supervisor.slot import Slot
from squall.scheduler.supervisor.worker_life import SlotState

REST_SECS = 1.0
"""Time from the moment when a topology's workers are ready until it gets a spare."""
POLICY = RestartPolicyOptions(
    immediate_restarts=1, first_delay_secs=30, delay_factor=10, max_delay_secs=3600, probation_secs=60,
)

log = logging.getLogger(__name__)


class Spares:
    """The spares of one node. Thread: the supervisor's loop."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._resting: dict[str, float] = {}
        """Since when all workers of a topology, named by its id, have been ready."""
        self._asked: dict[str, float] = {}
        """When a spare was asked for, by the id of a topology that has one, or will soon."""
        self._policies: dict[str, RestartPolicy] = {}
        """Of topologies that had a spare that ended."""
        self._not_before: dict[str, float] = {}

    def look(self, slots: Collection[Slot], now: float) -> tuple[list[TopologyRecord], list[str]]:
        """The topologies that are to get a spare now, and the ids of those whose spare is to end."""
        held = {slot.target.topology.id: slot.target.topology for slot in slots if slot.target is not None}
        restless = {
            slot.target.topology.id
            for slot in slots
            if slot.target is not None and (slot.state is not SlotState.RUNNING or slot.work is not slot.target)
        }
        gone = list(self._asked.keys() - held.keys())
        for kept in (self._asked, self._policies, self._not_before):
            for topology_id in kept.keys() - held.keys():
                del kept[topology_id]
        self._resting = {
            topology_id: self._resting.get(topology_id, now) for topology_id, record in held.items()
            if record.conf.get("warm_spare") and topology_id not in restless
        }
        due = [
            held[topology_id] for topology_id, since in self._resting.items()
            if topology_id not in self._asked and now >= max(since + REST_SECS, self._not_before.get(topology_id, now))
        ]
        self._asked |= {record.id: now for record in due}
        return due, gone

    def ended(self, topology_id: str, reason: str, now: float) -> None:
        """A spare is no more. No reason: it became a worker, or made room for one."""
        asked_at = self._asked.pop(topology_id, now)
        self._resting.pop(topology_id, None)
        if not reason:
            return
        if topology_id not in self._policies:
            log.warning(
                "%s has no spare worker, so a replacement imports its code first: %s", plain(topology_id), plain(reason)
            )
        policy = self._policies.setdefault(topology_id, RestartPolicy(POLICY, self._rng))
        verdict = policy.died(now, lived_secs=now - asked_at)
        if isinstance(verdict, StartAgain):
            self._not_before[topology_id] = now + verdict.delay_secs

    def all_ended(self) -> None:
        """The forking parent has ended, and its spares with it."""
        self._asked.clear()
        self._resting.clear()
