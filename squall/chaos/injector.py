"""Brings the faults of a mix about on a real cluster, ends them, and keeps a record of both.

Guarantees: after `heal` nothing that was begun is in force any more. A fault whose target was not there at its time
(dead, and not replaced yet) is recorded as missed; nothing else is done for it.
"""

from __future__ import annotations

import contextlib
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
    ended_secs: float | None = None
    missed: str = ""
    """Why nothing happened."""
    deaths: int = 0
    """How many deaths it has been found to be the cause of."""

    @property
    def in_force(self) -> bool:
        return self.ended_secs is None

    @property
    def due_secs(self) -> float:
        """When it is to end."""
        return self.began_secs + (self.fault.for_secs or 0.0)


class Injector:
    """The faults of one trial. Owner: the trial."""

    def __init__(self, cluster: LocalCluster, faults: Sequence[Fault], started_secs: float) -> None:
        self._cluster = cluster
        self._started_secs = started_secs
        self._to_come = sorted(faults, key=at_secs)
        self.injected: list[Injected] = []

    def turn(self) -> None:
        """Begin and end what is due."""
        now = time.monotonic()
        for one in self.injected:
            if one.in_force and now >= one.due_secs:
                self._end(one)
        while self._to_come and now >= self._started_secs + at_secs(self._to_come[0]):
            self._begin(self._to_come.pop(0))

    def heal(self) -> None:
        """End what is in force; what has not begun does not any more."""
        self._to_come.clear()
        for one in self.injected:
            if one.in_force:
                self._end(one)

    def _begin(self, fault: Fault) -> None:
        one = Injected(fault, time.monotonic())
        self.injected.append(one)
        try:
            self._cluster.inject(fault.kind, *fault.targets)
        except ClusterError as error:
            one.missed = str(error)
        if one.missed or fault.for_secs is None:
            one.ended_secs = one.began_secs

    def _end(self, one: Injected) -> None:
        with contextlib.suppress(ClusterError):  # it died meanwhile: there is nothing left to continue
            self._cluster.inject("continue", *one.fault.targets)
        one.ended_secs = time.monotonic()


def at_secs(fault: Fault) -> float:
    """When a fault of a mix begins, after the start of its trial."""
    assert isinstance(fault.when, AfterSecs)
    return fault.when.secs
