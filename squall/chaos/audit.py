"""Finds what a cluster's run left behind: in its directory, in shared memory, in the process table, in this process.

Guarantees: names each leftover of this run, and none of another. What a process of the run held is known from looks at
it while it lived. Files outside the run's directory belong to users, in /dev/shm too: Squall keeps its shared memory in
the directory (boards) and in memory without a name (arenas).

Relies on: Linux's /proc; the mark that every process of a cluster carries.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import psutil

from squall.ipc.rundir import RunDir
from squall.scheduler.common.mark import processes_of
from squall.testing.leftovers import descriptors, left_behind

ZOMBIE_SECS = 2.0
"""Longest that a dead child may stay: its parent reaps it in its next turn."""
_POLL_SECS = 0.1
_MEMFD = "/memfd:"
_SOCKETS = ("nimbus.sock", "n/*.sock", "s/*")
_BOARDS = "boards/*"
_UNFINISHED = "**/*.new"
"""Files that are written under another name first: the rename was forgotten."""


class Audit:
    """The audit of one run. Made before the cluster is; `look` while it lives, `left` once its directory is gone."""

    def __init__(self) -> None:
        self._descriptors = descriptors()
        self._children = {child.pid for child in psutil.Process().children()}
        self._memory: set[int] = set()
        """Inodes of the memory without a name that processes of the run had."""

    def look(self, run_dir: RunDir) -> None:
        """Note what the run's processes hold now."""
        for process in processes_of(run_dir):
            for target, inode in _open_files(process.pid):
                if target.startswith(_MEMFD):
                    self._memory.add(inode)

    def zombies(self, run_dir: RunDir) -> list[str]:
        """The dead children that the run's living processes do not reap within ZOMBIE_SECS."""
        deadline = time.monotonic() + ZOMBIE_SECS
        while found := _dead_children({process.pid for process in processes_of(run_dir)}):
            if time.monotonic() >= deadline:
                return [f"zombie {pid}, a child of process {parent}" for pid, parent in sorted(found.items())]
            time.sleep(_POLL_SECS)
        return []

    def in_directory(self, run_dir: RunDir) -> list[str]:
        """What is still in the directory of a cluster that has ended, and should not be."""
        lines = [f"socket {path}" for pattern in _SOCKETS for path in run_dir.path.glob(pattern)]
        lines += [f"board {path}" for path in run_dir.path.glob(_BOARDS)]
        unfinished = run_dir.path.glob(_UNFINISHED)
        # Tasks' own files have the names that their authors like.
        lines += [f"unfinished file {path}" for path in unfinished if not path.is_relative_to(run_dir.states)]
        return sorted(lines)

    def left(self, run_dir: RunDir) -> list[str]:
        """What is left when the directory has been removed."""
        lines = left_behind(run_dir, self._descriptors)
        lines += sorted(f"socket {path} is still open" for path in _bound_sockets() if _is_below(path, run_dir))
        zombies = _dead_children({os.getpid()}).keys() - self._children
        lines += [f"zombie {pid}, a child of this process" for pid in sorted(zombies)]
        return lines + self._still_held(run_dir)

    def _still_held(self, run_dir: RunDir) -> list[str]:
        """Files and memory of the run that any other process of this user holds."""
        lines = []
        for process in psutil.process_iter():
            if process.pid == os.getpid():
                continue
            for target, inode in set(_open_files(process.pid)):
                mine = target.startswith(_MEMFD) and inode in self._memory
                if mine or _is_below(target, run_dir):
                    lines.append(f"process {process.pid} holds {target}")
        return lines


def _dead_children(parents: set[int]) -> dict[int, int]:
    """Pid of each zombie of these processes -> pid of its parent."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE and process.ppid() in parents:
                found[process.pid] = process.ppid()
    return found


def _is_below(path: str, run_dir: RunDir) -> bool:
    return path.startswith(f"{run_dir.path}/")


def _bound_sockets() -> Iterator[str]:
    """The paths to which Unix sockets are bound, also if the file has been removed."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        next(file)
        for line in file:
            parts = line.rstrip("\n").split(None, 7)
            if len(parts) == 8:
                yield parts[7]


def _open_files(pid: int) -> Iterator[tuple[str, int]]:
    """(target, inode) of each descriptor and mapping of a process; none if it has ended or is not ours."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for number in os.listdir(folder):
            with contextlib.suppress(OSError):  # closed meanwhile
                yield os.readlink(f"{folder}/{number}"), os.stat(f"{folder}/{number}").st_ino
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            parts = line.rstrip("\n").split(None, 5)
            if len(parts) == 6 and parts[5].startswith("/"):
                yield parts[5], int(parts[4])
