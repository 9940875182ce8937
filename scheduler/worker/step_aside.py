"""Letting another thread have the processor for a moment: ZeroMQ's, that has just been given something to send.

Linux may have a thread that was woken wait until the running one has used up its slice of time, some milliseconds; a
frame that waits for that doubles the latency of its trees at half load (measured, see benchmarks/NOTES.md). Who steps
aside (`sched_yield`) forfeits the rest of its slice, though: beside somebody who wants the processor for himself it
would come out with a fraction of its share.

Guarantees: what stepping aside costs in that case is a twentieth of the time, because whoever stayed away for long does
not do it again for twenty times as long.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_LONG_NS = 300_000
"""ZeroMQ's thread needs a tenth of this, another worker until it steps aside itself about half."""
_PAUSE = 20


class StepAside:
    """Called by one thread, after it has given another something to do."""

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
