"""Finds a cluster's leftovers on this machine after an orderly close.

Guarantees: names each leftover: processes of the cluster and processes that components started, the run directory,
descriptors of this process. Ends leftover processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping

import psutil

from squall.ipc.rundir import RunDir
from squall.scheduler.common.mark import processes_of, signal_marked

PATIENCE_SECS = 5.0
"""Longest wait for a process that was told to end: a busy machine needs some time."""
_POLL_SECS = 0.02


def descriptors() -> dict[int, str]:
    """This process's open descriptors: number -> target."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, such as the one that lists this directory
            found[int(number)] = os.readlink(f"/proc/self/fd/{number}")
    return found


def left_behind(run_dir: RunDir, before: Mapping[int, str] | None = None) -> list[str]:
    """A line for each leftover. `before`: descriptors to ignore; None: all outside the directory."""
    deadline = time.monotonic() + PATIENCE_SECS
    while (left := processes_of(run_dir)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECS)
    lines = [_described(process) for process in left]
    for process in left:
        signal_marked(process, run_dir, signal.SIGKILL)
    if run_dir.path.exists():
        lines.append(f"directory {run_dir.path}")
    for number, target in descriptors().items():
        if target.startswith(f"{run_dir.path}/") or (before is not None and before.get(number) != target):
            lines.append(f"descriptor {number} of this process: {target}")
    return lines


def _described(process: psutil.Process) -> str:
    try:
        return f"process {process.pid}: {' '.join(process.cmdline()).rstrip()[:200]}"
    except psutil.NoSuchProcess:
        return f"process {process.pid}, which ended just now"
