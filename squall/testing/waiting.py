"""Waits for other processes: for a condition, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_POLL_SECS = 0.002


def wait_for(what: str, condition: Callable[[], T], timeout_secs: float = 20.0) -> T:
    """Return the first true value of `condition()`; AssertionError naming `what` if `timeout_secs` pass first."""
    deadline = time.monotonic() + timeout_secs
    before = time.thread_time()
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_secs:g} s for {what}"
        # A condition that takes 10 ms, as one that looks at every process, would take a core from what it waits for.
        time.sleep(max(_POLL_SECS, 4 * (time.thread_time() - before)))
        before = time.thread_time()
    return value
