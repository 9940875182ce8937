"""Exit statuses and /proc, read for people."""

from __future__ import annotations

import os
import signal

import pytest

from squall.engine.errors import ClusterError
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


def test_memory_is_counted_in_bytes() -> None:
    assert 1_000_000 < process.rss_bytes(os.getpid()) < 1 << 40


@pytest.mark.parametrize("ask", [process.start_time_ticks, process.rss_bytes, process.open_pidfd])
def test_a_process_that_does_not_exist_is_named(ask: object) -> None:
    assert callable(ask)
    with pytest.raises(ClusterError, match="process 4194999 does not exist"):
        ask(4194999)


def test_an_impossible_signal_is_refused_by_name() -> None:
    pidfd = process.open_pidfd(os.getpid())
    try:
        with pytest.raises(ClusterError, match="cannot send signal 4000 through a pidfd: Invalid argument"):
            process.send_signal(pidfd, 4000)
    finally:
        os.close(pidfd)


def test_there_is_no_dead_child_to_find() -> None:
    assert process.peek_dead_child() is None
