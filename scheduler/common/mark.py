"""The mark that every process of a cluster carries, and finding running processes by it and by their roles.

Guarantees: a process carries the mark when it is signalled here; another one with a reused pid is never hit.

Relies on: every process of a cluster being executed with `daemon_environment`, or forked from such a process.
"""

from __future__ import annotations

import contextlib
import os

import psutil

from squall.engine.errors import ClusterError
from squall.ipc import text_seed
from squall.ipc.rundir import RunDir
from squall.scheduler.common.process import open_pidfd, send_signal
from squall.scheduler.common.process_title import Role, role_in

RUN_DIR_MARK = "SQUALL_RUN_DIR"
"""Environment variable of every process of a cluster, by which strays are known."""


def processes_of(run_dir: RunDir) -> list[psutil.Process]:
    """All other running processes of a cluster of this user: daemons, forking parents, workers."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            marked = process.pid != os.getpid() and is_marked(process, run_dir)
            if marked and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def is_marked(process: psutil.Process, run_dir: RunDir) -> bool:
    """Whether a process is this user's and of this cluster. psutil.Error if it has ended."""
    ours = process.uids().effective == os.geteuid()
    return ours and process.environ().get(RUN_DIR_MARK) == str(run_dir.path)


def signal_marked(process: psutil.Process, run_dir: RunDir, signum: int) -> None:
    """Signal a process that `processes_of` found, unless it has ended: another one with its pid is never hit."""
    with contextlib.suppress(psutil.Error, ClusterError):
        pidfd = open_pidfd(process.pid)
        try:
            # Check after opening the pidfd: if the pid is the cluster's now, the descriptor is too.
            if is_marked(process, run_dir):
                send_signal(pidfd, signum)
        finally:
            os.close(pidfd)


def role_of(process: psutil.Process) -> Role | None:
    """The role of a process; None if it has none of a cluster, or has ended."""
    try:
        return role_in(process.cmdline())
    except psutil.Error:
        return None


def daemon_environment(run_dir: RunDir) -> dict[str, str]:
    """A daemon's environment: that of this process, the mark, and the seed of its cluster."""
    return {**os.environ, RUN_DIR_MARK: str(run_dir.path), **text_seed.environment(run_dir.text_seed())}
