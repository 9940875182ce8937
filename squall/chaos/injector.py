"""Injects the faults of a mix into a real cluster, ends them, and records both.

Guarantees: after `heal`, no injected fault is in force, and every process that one killed has ended: a Nimbus ends only
after its answer, and would take later requests with it. A fault whose target is missing at its time (dead, and not yet
replaced) is recorded as missed and skipped. While Nimbus is away, the faults that are due wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from squall.engine.errors import ClusterError
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.common.process import lives
from squall.scheduler.faults.in_force import Victim
from squall.scheduler.faults.sentence import Fault

_HEAL_SECS = 30.0
"""Longest that the end of all faults is tried: each ends by itself after seconds, and until then Nimbus may be unable
to note it."""
_HEAL_RETRY_SECS = 0.1


@dataclass
class Injected:
    """A fault that was injected or missed."""

    fault: Fault
    began_secs: float
    """On the monotonic clock."""
    ends_secs: float
    missed: str = ""
    """Why it was missed; empty if it was not."""


class Injector:
    """The faults of one trial. Owner: the trial."""

    def __init__(self, cluster: LocalCluster, faults: Sequence[Fault], started_secs: float) -> None:
        self._cluster = cluster
        self._started_secs = started_secs
        self._to_come = sorted(faults, key=lambda fault: fault.at_secs)
        self.injected: list[Injected] = []
        self._killed: list[Victim] = []

    def turn(self) -> None:
        """Begin the faults that are due. They end by themselves."""
        while self._to_come and time.monotonic() >= self._started_secs + self._to_come[0].at_secs:
            if self._cluster.run_dir.lock_holder() is None:
                return
            self._begin(self._to_come.pop(0))

    def heal(self) -> None:
        """End the faults in force, and drop those not begun yet."""
        self._to_come.clear()
        deadline = time.monotonic() + _HEAL_SECS
        while not self._is_healed():
            if time.monotonic() >= deadline:
                raise ClusterError(f"the faults in force could not be ended within {_HEAL_SECS:g} s")
            time.sleep(_HEAL_RETRY_SECS)
        now = time.monotonic()
        for one in self.injected:
            one.ends_secs = min(one.ends_secs, now)

    def _is_healed(self) -> bool:
        if any(lives(victim.pid, victim.started_ticks) for victim in self._killed):
            return False
        try:
            self._cluster.client.heal()
        except ClusterError:
            return False
        return True

    def _begin(self, fault: Fault) -> None:
        one = Injected(fault, time.monotonic(), time.monotonic())
        self.injected.append(one)
        try:
            begun = self._cluster.client.inject(replace(fault, at_secs=0.0))
        except ClusterError as error:
            one.missed = str(error)
        else:
            one.began_secs = min(each.began_secs for each in begun)
            one.ends_secs = max(each.ends_secs for each in begun)
            if fault.kind == "kill":
                self._killed += [victim for each in begun for victim in each.victims]
