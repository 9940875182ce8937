"""A worker's turn, where it can be looked at without a cluster."""

from __future__ import annotations

import time

import pytest

from squall.scheduler.worker import Worker


@pytest.mark.parametrize(("lasts_ms", "looks"), [(0, True), (3, False), (10_000, False)])
def test_a_turn_that_is_long_already_is_not_made_longer(lasts_ms: int, looks: bool) -> None:
    """Slow bolts would otherwise execute as much again in the middle of a turn, and look stuck to their supervisor."""
    worker = Worker.__new__(Worker)
    worker._owes_answers = False
    worker._turn_ns = time.monotonic_ns() - lasts_ms * 1_000_000
    looked: list[bool] = []

    def take_in() -> bool:
        looked.append(True)
        return True

    worker._take_in = take_in  # type: ignore[method-assign]
    assert worker._pause() is looks
    assert bool(looked) is looks
