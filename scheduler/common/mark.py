"""The mark that every process of a cluster carries, and finding those that run by it.

Guarantees: a process that is signalled here carries the mark when it is; nobody who has its number by now is hit.

Relies on: every process of a cluster having the name of its run directory in its environment.
"""

from __future__ import annotations

import contextlib
import os

import psutil

from squall.engine.errors import ClusterError
from squall.ipc.rundir import RunDir
from squall.scheduler.common.process import open_pidfd, send_signal

RUN_DIR_MARK = "SQUALL_RUN_DIR"
"""Environment variable that every process of a cluster carries, so that strays can be told from others'."""


def processes_of(run_dir: RunDir) -> list[psutil.Process]:
    """Every process of a cluster of ours that runs, but this one: daemons, forking parents, workers."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            marked = process.pid != os.getpid() and is_marked(process, run_dir)
            if marked and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def is_marked(process: psutil.Process, run_dir: RunDir) -> bool:
    """Whether a process is ours and of this cluster. psutil.Error if it has ended."""
    ours = process.uids().effective == os.geteuid()
    return ours and process.environ().get(RUN_DIR_MARK) == str(run_dir.path)


def signal_marked(process: psutil.Process, run_dir: RunDir, signum: int) -> None:
    """Signal a process that `processes_of` found, unless it has ended: nobody else who has its number by now is hit."""
    with contextlib.suppress(psutil.Error, ClusterError):
        pidfd = open_pidfd(process.pid)
        try:
            # After the pidfd was opened: if the number is the cluster's now, the descriptor is as well.
            if is_marked(process, run_dir):
                send_signal(pidfd, signum)
        finally:
            os.close(pidfd)


def runs(process: psutil.Process, word: str) -> bool:
    """Whether the word, a module or a node, is in the process's command line; not if it has ended meanwhile."""
    try:
        return word in process.cmdline()
    except psutil.Error:
        return False
