"""A wall clock that is moved on purpose."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from squall.scheduler.worker.wall_clock import shift_wall_clock


@pytest.fixture(autouse=True)
def right_again() -> Iterator[None]:
    yield
    shift_wall_clock(0)


def test_it_jumps_and_comes_back() -> None:
    genuine, monotonic = time.time, time.monotonic()
    shift_wall_clock(-3600)
    assert genuine() - 3601 < time.time() < genuine() - 3599
    assert abs(time.time_ns() / 1e9 - time.time()) < 1
    shift_wall_clock(3600)
    assert time.time() > genuine() + 3599
    assert time.monotonic() - monotonic < 60
    shift_wall_clock(0)
    assert time.time is genuine
