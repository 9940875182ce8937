"""A fault that was begun: its victims, its carrier, and its end.

Guarantees: a fault ends by its carrier's clock; no process has to be told, and no daemon has to live. Healing sets an
earlier end. Times are of the monotonic clock, which all processes of a machine share; a fault from before a reboot
begins in the future, and is not in force.
"""

from __future__ import annotations

from typing import Any

import msgspec

from squall.scheduler.faults.resolution import ANYBODY, LinkEnds

WORKERS, NIMBUS = "", "nimbus"
"""Values of `carrier`: the workers themselves, and Nimbus. Every other one names a node, whose supervisor carries."""
PERIOD_SECS = 0.05
"""Period of a throttled process, of which it runs for a share: shorter than any wait for a sign of life, longer than
ten turns of a worker."""


class Victim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process that a fault hits, identified for good by pid and start time."""

    name: str
    """ "node-1:6700", "supervisor node-1", "nimbus"."""
    pid: int
    started_ticks: int
    incarnation: int = 0
    """Of a worker; 0 for a daemon."""


class FaultInForce(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault that was begun."""

    id: int
    """Unique in the run directory, for good."""
    kind: str
    targets: list[str]
    """As requested."""
    began_secs: float
    ends_secs: float
    """For a fault that is over at once, the time at which it began."""
    carrier: str = WORKERS
    victims: list[Victim] = []
    topology_id: str = ""
    """Of `tasks`."""
    tasks: list[int] = []
    links: list[LinkEnds] = []
    params: dict[str, Any] = {}
    probability: float | None = None
    seed: int = 0

    def breaks(self, sender: str, receiver: str) -> bool:
        """Whether the link from this worker to that one is among its links."""
        return any(_is_of(sender, link.sender) and _is_of(receiver, link.receiver) for link in self.links)

    def is_in_force(self, now: float) -> bool:
        return self.began_secs <= now < self.ends_secs

    def left_secs(self, now: float) -> float:
        return max(0.0, self.ends_secs - now)

    def holds(self, now: float) -> bool:
        """Whether its victims must be stopped, or have no disk, now."""
        runs = self.kind == "throttle" and (now - self.began_secs) % PERIOD_SECS < self._runs_secs
        return self.is_in_force(now) and not runs

    def changes_at(self, now: float) -> float | None:
        """When `holds` may change next; None: never again."""
        if now < self.began_secs:
            return self.began_secs
        if not self.is_in_force(now):
            return None
        if self.kind != "throttle":
            return self.ends_secs
        into_secs = (now - self.began_secs) % PERIOD_SECS
        left_secs = (self._runs_secs if into_secs < self._runs_secs else PERIOD_SECS) - into_secs
        return min(self.ends_secs, now + left_secs)

    @property
    def _runs_secs(self) -> float:
        """Seconds of each period in which a throttled process runs."""
        return PERIOD_SECS * float(self.params["share"])


def _is_of(worker: str, end: str) -> bool:
    return end in (ANYBODY, worker, worker.rpartition(":")[0])
