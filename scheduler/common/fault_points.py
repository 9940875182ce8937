"""Named points in product code at which a test or an operator can have a worker die.

Guarantees: off (the default), a point costs one `if`; on, the worker kills itself with SIGKILL at the n-th pass of the
named point, so nothing after that point happens.

A plan is text: `point:n`, several separated by commas, in the environment variable SQUALL_FAULT_POINTS of the cluster's
processes. `point:n@count[0]` is for those workers only that have this name: their own, their node's, or that of a
component or task that they run, escaped as in an address (`my%20bolt`). A point fires in the first incarnation of a
worker only, unless it is written `point:n:always`. Link faults (see `ipc.shim`) are armed likewise:
SQUALL_LINK_FAULTS=drop:0.01,duplicate:0.05:data and SQUALL_LINK_SEED.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Container
from urllib.parse import quote, unquote

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

    def __init__(self, plan: str, incarnation: int, names: Callable[[], Container[str]] = tuple) -> None:
        """`names`: by which this worker may be meant; asked only if the plan means some workers only."""
        self._left: dict[str, int] = {}
        for entry in filter(None, plan.split(",")):
            when, at, name = entry.partition("@")
            point, _, rest = when.partition(":")
            count, _, always = rest.partition(":")
            if point not in POINTS or not count.isdecimal() or int(count) < 1 or always not in ("", "always"):
                raise UsageError(
                    f"fault point {entry!r} is not understood; write point:n or point:n:always, point being one of "
                    f"{', '.join(POINTS)}"
                )
            if (always or incarnation == 1) and (not at or unquote(name) in names()):
                self._left[point] = min(int(count), self._left.get(point, int(count)))

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


def entry_of(point: str, nth_pass: int, name: str) -> str:
    """What a plan says to kill the workers of this name at the n-th pass of a point."""
    return f"{point}:{nth_pass}@{quote(name, safe='')}"


def from_environment(incarnation: int, names: Callable[[], Container[str]] = tuple) -> FaultPoints | None:
    """The plan of this process's environment; None if there is none."""
    points = FaultPoints(os.environ.get(ENVIRONMENT, ""), incarnation, names)
    return points if points.armed else None
