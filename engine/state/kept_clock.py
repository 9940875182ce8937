"""The clock by which state ages and windows by the clock end: nanoseconds since 1970 that no jump moves.

::

    first life          the wall clock's time when it begins, and from there on what passes
    a life, a boot      passes as the machine's uptime, suspended time included, whether or not a process lives
    after a reboot      passes as the wall clock has moved since, as nothing else is known; never back

Guarantees: never goes below a time that was committed; within a boot it moves exactly as the uptime. So what a wrong
clock showed in the first life stays: times of windows are off by as much.

Relies on: `write` in each commit that depends on it. Thread: the task's.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from squall.engine.api.context import TopologyContext
from squall.engine.clock import NS_PER_SEC
from squall.engine.state.task_store import TaskStore, unpickled

CLOCK = "clock"
"""In the store."""
_JUMP_NS = 2 * NS_PER_SEC
"""Less is no jump: leap seconds, and corrections that harm nothing."""


def kept_clock(store: TaskStore, context: TopologyContext) -> KeptClock:
    """Return the clock of the task that has this store."""
    if context.now_ns is not time.monotonic_ns:
        return KeptClock(store, context.now_ns, context.wall_ns)
    # In place of the monotonic clock, which stops while the machine is suspended.
    up_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
    return KeptClock(store, up_ns, context.wall_ns, Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))


class KeptClock:
    """The clock of one task, kept in its store."""

    def __init__(
        self, store: TaskStore, up_ns: Callable[[], int], wall_ns: Callable[[], int], boot: str = "simulated"
    ) -> None:
        """`up_ns`: the uptime; `boot`: an id of the boot since which it counts."""
        self._store, self._up_ns, self._wall_ns, self._boot = store, up_ns, wall_ns, boot
        self._ahead_ns, up, begins_ns = 0, up_ns(), wall_ns()
        """How far the wall clock is ahead, as far as that is reported."""
        if (packed := store.meta(CLOCK)) is not None:
            kept_ns, offset_ns, self._ahead_ns, of_boot = unpickled(packed, store.where)
            begins_ns = max(kept_ns, up + offset_ns if of_boot == boot else begins_ns - self._ahead_ns)
        self._offset_ns = begins_ns - up

    def now_ns(self) -> int:
        """The time."""
        return self._up_ns() + self._offset_ns

    def write(self) -> None:
        """Write the time with the commit that is open."""
        self._store.put_meta(CLOCK, pickle.dumps((self.now_ns(), self._offset_ns, self._ahead_ns, self._boot), 5))

    def jump(self) -> str:
        """Commit and describe a jump of the wall clock since the last call, in this life or an earlier one; "" if there
        was none."""
        moved_ns = self._wall_ns() - self.now_ns() - self._ahead_ns
        if abs(moved_ns) < _JUMP_NS:
            return ""
        self._ahead_ns += moved_ns
        with self._store.changing():
            self.write()
        way = "forward" if moved_ns > 0 else "back"
        return (
            f"the wall clock jumped {way} by {abs(moved_ns) / NS_PER_SEC:.0f} s; the time by which state ages and "
            f"windows end did not, and is {abs(self._ahead_ns) / NS_PER_SEC:.0f} s off now"
        )
