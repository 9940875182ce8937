"""Named points in product code at which a test or an operator can have a worker die.

Guarantees: off (the default), a point costs one `if`; on, the worker kills itself with SIGKILL at the n-th pass of the
named point, so nothing after that point happens.

A plan is text: `point:n`, several separated by commas, in the environment variable SQUALL_FAULT_POINTS of the cluster's
processes. Link faults (see `ipc.shim`) are armed likewise: SQUALL_LINK_FAULTS=drop:0.01,duplicate:0.05:data and
SQUALL_LINK_SEED. A point fires in the first incarnation of a worker only, unless it is written `point:n:always`.
"""

from __future__ import annotations

import os
import signal

from squall.engine.errors import UsageError
from squall.ipc.shim import LinkShim, parse_rules

POINTS = {
    "worker.open": "before the tasks are opened",
    "worker.ready": "after the supervisor was told that the worker is ready",
    "worker.receive": "after frames or acks were taken in, before they are acted upon",
    "worker.acks": "after another worker's ackers were told of acks through shared memory",
    "worker.step": "after executors had their turn, before anything is sent",
    "worker.send": "after frames were sent",
    "worker.credit": "after credit was returned",
    "worker.publish": "after the board was written",
    "worker.stop": "when told to stop, before the tasks are closed",
}
ENVIRONMENT = "SQUALL_FAULT_POINTS"
LINK_ENVIRONMENT, LINK_SEED_ENVIRONMENT = "SQUALL_LINK_FAULTS", "SQUALL_LINK_SEED"


class FaultPoints:
    """The armed points of one worker."""

    def __init__(self, plan: str, incarnation: int) -> None:
        self._left: dict[str, int] = {}
        for entry in filter(None, plan.split(",")):
            point, _, rest = entry.partition(":")
            count, _, always = rest.partition(":")
            if point not in POINTS or not count.isdecimal() or int(count) < 1 or always not in ("", "always"):
                raise UsageError(
                    f"fault point {entry!r} is not understood; write point:n or point:n:always, point being one of "
                    f"{', '.join(POINTS)}"
                )
            if always or incarnation == 1:
                self._left[point] = int(count)

    @property
    def armed(self) -> bool:
        return bool(self._left)

    def hit(self, point: str) -> None:
        """Pass a point; die if the plan says so."""
        left = self._left.get(point)
        if left is None:
            return
        if left == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left[point] = left - 1


def link_shim_from_environment(worker: int) -> LinkShim | None:
    """The link faults of this process's environment, if any. Each worker has its own seed."""
    rules = parse_rules(os.environ.get(LINK_ENVIRONMENT, ""))
    seed = int(os.environ.get(LINK_SEED_ENVIRONMENT, "0"))
    return LinkShim(rules, seed * 1009 + worker) if rules else None


def from_environment(incarnation: int) -> FaultPoints | None:
    """The plan of this process's environment; None if there is none."""
    points = FaultPoints(os.environ.get(ENVIRONMENT, ""), incarnation)
    return points if points.armed else None
