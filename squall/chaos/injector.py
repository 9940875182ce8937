"""Injects the faults of a mix into a real cluster, ends them, and records both.

Guarantees: after `heal`, no injected fault is in force. A fault whose target is missing at its time (dead, and not yet
replaced) is recorded as missed and skipped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from squall.engine.errors import ClusterError
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.faults.fault import AfterSecs, Fault


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
        self._to_come = sorted(faults, key=at_secs)
        self.injected: list[Injected] = []

    def turn(self) -> None:
        """Begin the faults that are due. They end by themselves."""
        while self._to_come and time.monotonic() >= self._started_secs + at_secs(self._to_come[0]):
            self._begin(self._to_come.pop(0))

    def heal(self) -> None:
        """End the faults in force, and drop those not begun yet."""
        self._to_come.clear()
        self._cluster.heal()
        now = time.monotonic()
        for one in self.injected:
            one.ends_secs = min(one.ends_secs, now)

    def _begin(self, fault: Fault) -> None:
        one = Injected(fault, time.monotonic(), time.monotonic())
        self.injected.append(one)
        try:
            begun = self._cluster.inject(
                fault.kind, *fault.targets, for_secs=fault.for_secs, probability=fault.probability, seed=fault.seed,
                **fault.params,
            )
        except ClusterError as error:
            one.missed = str(error)
        else:
            one.began_secs = min(each.began_secs for each in begun)
            one.ends_secs = max(each.ends_secs for each in begun)


def at_secs(fault: Fault) -> float:
    """Start of a fault, in seconds after the start of its trial."""
    assert isinstance(fault.when, AfterSecs)
    return fault.when.secs
