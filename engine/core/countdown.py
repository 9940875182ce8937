"""Counts steps down and calls back after the last."""

from __future__ import annotations

from collections.abc import Callable


class Countdown:
    """Calls `done` at the `count`-th call of `step`."""

    __slots__ = ("_count", "_done")

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._count = count
        self._done = done

    def step(self) -> None:
        self._count -= 1
        if not self._count:
            self._done()
