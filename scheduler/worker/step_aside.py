"""Yields the processor for a moment to ZeroMQ's thread, which has just been given a frame to send.

Linux may let a woken thread wait until the running one has used up its time slice, some milliseconds; a frame that
waits so long doubles the latency of its trees at half load (measured, see benchmarks/NOTES.md). But a thread that
yields (`sched_yield`) forfeits the rest of its slice: beside a process that computes without pause it would get only a
fraction of its share.

Guarantees: in that case yielding costs at most a twentieth of the time, because after a long absence the thread does
not yield again for twenty times as long.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_LONG_NS = 300_000
"""An absence is long beyond this: ZeroMQ's thread needs a tenth of it, another worker that yields itself about half."""
_PAUSE = 20
"""The pause after a long absence, in multiples of that absence: bounds the cost to a twentieth of the time."""


class StepAside:
    """Called by a thread right after it has given another thread something to do."""

    def __init__(
        self, step: Callable[[], None] = os.sched_yield, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._step = step
        self._now_ns = now_ns
        self._not_before_ns = 0

    def __call__(self) -> None:
        began_ns = self._now_ns()
        if began_ns < self._not_before_ns:
            return
        self._step()
        back_ns = self._now_ns()
        if back_ns - began_ns > _LONG_NS:
            self._not_before_ns = back_ns + _PAUSE * (back_ns - began_ns)
