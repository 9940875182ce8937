"""Shifts the wall clock as this process's Python code sees it.

Guarantees: `time.time` and `time.time_ns` are shifted for code that calls them by these names; monotonic clocks, other
processes, and C code (`datetime.now`) are not. Squall decides nothing by the wall clock: only users' components notice.
"""

from __future__ import annotations

import time

_TIME, _TIME_NS = time.time, time.time_ns


def shift_wall_clock(secs: float) -> None:
    """Put the clock ahead by `secs` (back if below 0) from now on; 0 restores it."""
    if not secs:
        time.time, time.time_ns = _TIME, _TIME_NS
        return
    later_ns = round(secs * 1e9)
    time.time = lambda: _TIME() + secs
    time.time_ns = lambda: _TIME_NS() + later_ns
