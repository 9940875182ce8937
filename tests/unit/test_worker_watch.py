"""The pidfds of workers, where the process has no descriptor left to look at them with."""

from __future__ import annotations

import os

import pytest
import zmq

from squall.scheduler.common import process
from squall.scheduler.supervisor.worker_watch import WorkerWatch


def test_a_worker_that_could_not_be_taken_over_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = WorkerWatch(zmq.Poller())

    def no_descriptor(pid: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(process, "start_time_ticks", no_descriptor)
    pidfd = os.pidfd_open(os.getpid())
    try:
        with pytest.raises(OSError, match="Too many open files"):
            watch.add(os.getpid(), pidfd)
        assert not watch.holds(os.getpid())
        # It hides no error by one of its own.
        watch.close()
    finally:
        os.close(pidfd)
