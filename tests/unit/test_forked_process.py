"""Who may fork."""

from __future__ import annotations

import threading

import pytest

from squall.engine.errors import ClusterError
from squall.scheduler import forked_process


def test_a_process_with_threads_does_not_fork() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        with pytest.raises(ClusterError, match=r"must have 1 thread, not \d+"):
            forked_process.fork(pytest.fail)
    finally:
        end.set()
        thread.join()
