"""Has this process's Python take another time for the present one.

Guarantees: `time.time` and `time.time_ns` are moved, for whoever calls them by these names; monotonic clocks, other
processes, and C code (`datetime.now`) are not. Nothing of ours decides by the wall clock: what moves is what users'
components see.
"""

from __future__ import annotations

import time

_TIME, _TIME_NS = time.time, time.time_ns


def shift_wall_clock(secs: float) -> None:
    """From now on it is so many seconds later (earlier if below 0); 0: the right time again."""
    if not secs:
        time.time, time.time_ns = _TIME, _TIME_NS
        return
    later_ns = round(secs * 1e9)
    time.time = lambda: _TIME() + secs
    time.time_ns = lambda: _TIME_NS() + later_ns
