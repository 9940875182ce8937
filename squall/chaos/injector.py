"""Brings the faults of a mix about on a real cluster, ends them, and keeps a record of both.

Guarantees: after `heal` nothing that was begun is in force any more. A fault whose target was not there at its time
(dead, and not replaced yet) is recorded as missed; nothing else is done for it.
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
    """A fault that was brought about, or should have been."""

    fault: Fault
    began_secs: float
    """On the monotonic clock."""
    ends_secs: float
    missed: str = ""
    """Why nothing happened."""


class Injector:
    """The faults of one trial. Owner: the trial."""

    def __init__(self, cluster: LocalCluster, faults: Sequence[Fault], started_secs: float) -> None:
        self._cluster = cluster
        self._started_secs = started_secs
        self._to_come = sorted(faults, key=at_secs)
        self.injected: list[Injected] = []

    def turn(self) -> None:
        """Begin what is due. It ends by itself."""
        while self._to_come and time.monotonic() >= self._started_secs + at_secs(self._to_come[0]):
            self._begin(self._to_come.pop(0))

    def heal(self) -> None:
        """End what is in force; what has not begun does not any more."""
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
    """When a fault of a mix begins, after the start of its trial."""
    assert isinstance(fault.when, AfterSecs)
    return fault.when.secs
