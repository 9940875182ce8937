"""Finds what a cluster's run left behind: in its directory, in the process table, in this process.

Guarantees: names each leftover of this run, and none of another; processes that are named are killed. Files outside the
run's directory belong to users, in /dev/shm too: Squall keeps its shared memory in the directory (boards) and in memory
without a name (arenas).

Relies on: Linux's /proc; the mark that all processes of a cluster carry, also those that components started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping

import psutil

from squall.ipc.rundir import RunDir
from squall.scheduler.common.role import await_none, processes_of, signal_marked

PATIENCE_SECS = 5.0
"""Longest wait for a process that was told to end, or a dead child that is reaped in its parent's next turn: a busy
machine needs some time."""
_POLL_SECS = 0.02
_IN_DIRECTORY = {
    "board": ("boards/*",),
    "socket": ("nimbus.sock", "n/*.sock", "s/*"),
    # Files that are written under another name first: the rename was forgotten.
    "unfinished file": ("**/*.new",),
}


def descriptors() -> dict[int, str]:
    """This process's open descriptors: number -> target."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, such as the one that lists this directory
            found[int(number)] = os.readlink(f"/proc/self/fd/{number}")
    return found


def zombies(run_dir: RunDir) -> list[str]:
    """The dead children that the run's living processes do not reap in time."""
    deadline = time.monotonic() + PATIENCE_SECS
    while (found := _dead_children(processes_of(run_dir))) and time.monotonic() < deadline:
        time.sleep(_POLL_SECS)
    return found


def _dead_children(parents: list[psutil.Process]) -> list[str]:
    found = []
    for parent in parents:
        with contextlib.suppress(psutil.Error):
            dead = [child.pid for child in parent.children() if child.status() == psutil.STATUS_ZOMBIE]
            found += [f"zombie {pid}, a child of process {parent.pid}" for pid in dead]
    return found


def in_directory(run_dir: RunDir) -> list[str]:
    """What is still in the directory of a cluster that has ended, and should not be."""
    return [
        f"{what} {path}"
        for what, patterns in _IN_DIRECTORY.items()
        for pattern in patterns
        for path in sorted(run_dir.path.glob(pattern))
        # Tasks' own files have the names that their authors like.
        if not path.is_relative_to(run_dir.states)
    ]


def left_behind(run_dir: RunDir, before: Mapping[int, str] | None = None) -> list[str]:
    """A line for each leftover of a run whose directory was removed. `before`: descriptors to ignore; None: all outside
    the directory."""
    left = await_none(run_dir, PATIENCE_SECS)
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
