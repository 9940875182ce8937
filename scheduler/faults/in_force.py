"""A fault that was begun: whom it hits, who carries it out, and until when.

Guarantees: a fault ends by the clock in whoever carries it out; nobody has to be told, and no daemon has to live. To
heal is to set an end that has come early. Times are of the monotonic clock, which all processes of a machine share;
what an earlier start of the machine has left begins in the future, and is not in force.
"""

from __future__ import annotations

from typing import Any

import msgspec

from squall.scheduler.faults.resolution import ANYBODY, LinkEnds

WORKERS, NIMBUS = "", "nimbus"
"""As `carrier`: the workers themselves, and Nimbus; every other carrier is the supervisor of the node of that name."""
PERIOD_SECS = 0.05
"""A throttled process runs for a share of each period, and is stopped for the rest. Shorter than anybody waits for a
sign of life, longer than ten turns of a worker."""


class Victim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process that a fault is carried out on, named for good by pid and start time."""

    name: str
    """ "node-1:6700", "supervisor node-1", "nimbus"."""
    pid: int
    started_ticks: int
    incarnation: int = 0
    """Of a worker."""
    limit_before: tuple[int, int] | None = None
    """Soft and hard, of a fault that lowers a limit: what the process had before."""



class FaultInForce(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault that was begun."""

    id: int
    """Its own in the run directory, for good."""
    kind: str
    targets: list[str]
    """As asked for."""
    began_secs: float
    ends_secs: float
    """Of one that is over at once, when it began."""
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
        """Whether the way from this worker to that one is one of its links."""
        return any(_is_of(sender, link.sender) and _is_of(receiver, link.receiver) for link in self.links)

    def is_in_force(self, now: float) -> bool:
        return self.began_secs <= now < self.ends_secs

    def left_secs(self, now: float) -> float:
        return max(0.0, self.ends_secs - now)

    def stops(self, now: float) -> bool:
        """Whether its victims are to be stopped now."""
        if not self.is_in_force(now):
            return False
        return self.kind == "stop" or (now - self.began_secs) % PERIOD_SECS >= self._runs_secs

    def changes_at(self, now: float) -> float | None:
        """When `stops` may say something else; None: never again."""
        if now < self.began_secs:
            return self.began_secs
        if not self.is_in_force(now):
            return None
        if self.kind == "stop":
            return self.ends_secs
        into_secs = (now - self.began_secs) % PERIOD_SECS
        left_secs = (self._runs_secs if into_secs < self._runs_secs else PERIOD_SECS) - into_secs
        return min(self.ends_secs, now + left_secs)

    @property
    def _runs_secs(self) -> float:
        """Of each period of a throttled process."""
        return PERIOD_SECS * float(self.params["share"])


def _is_of(worker: str, end: str) -> bool:
    return end in (ANYBODY, worker, worker.rpartition(":")[0])
