"""Waiting for a named condition with a deadline; the only way in which tests let time pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from squall import testing

T = TypeVar("T")


def wait_for(what: str, condition: Callable[[], T], timeout_secs: float = 100.0) -> T:
    """As that of the test kit, but more patient: what starts these processes may be a small machine with much to do."""
    return testing.wait_for(what, condition, timeout_secs)
