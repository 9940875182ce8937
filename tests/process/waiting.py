"""Waiting for a named condition with a deadline; the only place where tests let time pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(what: str, condition: Callable[[], T], secs: float = 20.0) -> T:
    """The first true value of `condition()`; AssertionError naming `what` when `secs` pass first."""
    deadline = time.monotonic() + secs
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {secs:g} s for {what}"
        time.sleep(0.002)
    return value
