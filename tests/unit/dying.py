"""A child process that dies at a step (see `ipc.fault_point`), for tests of what it leaves on disk."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

from squall.ipc.fault_point import ENVIRONMENT, arm, disarm, hit_by

_MORE_THAN_ENOUGH = 1000
"""Passes of one point."""


def dies_at(directory: Path, point: str, work: Callable[[], object], nth_pass: int = 1) -> bool:
    """Do `work` in a child that is to die at the n-th pass of a point; whether it did. AssertionError if it raised."""
    directory.mkdir(exist_ok=True)
    arm(directory, point, nth_pass)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.environ[ENVIRONMENT] = str(directory)
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    died = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert died == (hit_by(directory, point) == pid)
    assert died or os.WEXITSTATUS(status) == 0, f"the work failed before {point}"
    disarm(directory, point)
    return died


def passes_of(directory: Path, points: Iterable[str], work: Callable[[], object]) -> list[tuple[str, int]]:
    """Do `work` in a child that lives; every point that it passes, with the number of the pass."""
    directory.mkdir(exist_ok=True)
    for point in points:
        arm(directory, point, _MORE_THAN_ENOUGH)
    assert not dies_at(directory, "none", work)
    found = []
    for point in points:
        passes = _MORE_THAN_ENOUGH - int((directory / point).read_text().split()[0])
        found += [(point, nth_pass) for nth_pass in range(1, passes + 1)]
        disarm(directory, point)
    return found


def copy_of(path: Path, to: Path) -> Path:
    """A copy of a directory, in place of what is there."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(path, to, symlinks=True)
    return to
