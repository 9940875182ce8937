"""Exit statuses and /proc, read for people."""

from __future__ import annotations

import os
import signal

import pytest

from squall.scheduler.common import process


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, "exited with code 0"),
        (1 << 8, "exited with code 1"),
        (255 << 8, "exited with code 255"),
        (signal.SIGKILL, "killed by SIGKILL"),
        (signal.SIGTERM, "killed by SIGTERM"),
        (signal.SIGSEGV | process.CORE_DUMPED, "killed by SIGSEGV"),
        (40, "killed by signal 40"),
    ],
)
def test_statuses_are_described(status: int, text: str) -> None:
    assert process.describe_status(status) == text


def test_start_time_names_a_process_for_good() -> None:
    assert process.start_time_ticks(os.getpid()) == process.start_time_ticks(os.getpid()) > 0
    assert process.start_time_ticks(os.getpid()) >= process.start_time_ticks(os.getppid())
