"""Ends a cluster's processes without its Nimbus, and tells what a daemon said last.

Relies on: the mark that each process of a cluster carries (`scheduler.common.role`), so that the run directory need not
be there any more. Imports little: a launcher of a keeper needs it. Thread: the caller's.
"""

from __future__ import annotations

import signal
import time

import psutil

from squall.engine.errors import ClusterError
from squall.ipc.private import room_error
from squall.ipc.rundir import RunDir
from squall.scheduler.common.role import Role, RoleKind, processes_of, signal_marked

STOP_GRACE_SECS = 5.0
"""Longest time for workers' `close` and `cleanup` before they are killed."""
STOP_MARGIN_SECS = 5.0
_POLL_SECS = 0.02
"""Between two looks at the cluster's processes: a look reads every process of the machine."""


def end_lost(run_dir: RunDir) -> int:
    """End the processes of a cluster without Nimbus: by SIGTERM (supervisors stop workers), then by force. Return
    their number. Its run directory may have been removed."""
    # The keeper first: it restarts daemons.
    run_dir.keeper_lock.unlink(missing_ok=True)
    kill(run_dir, RoleKind.KEEPER)
    found = processes_of(run_dir)
    # Nimbus too: if its directory or its key is gone, it may still run, and would be waited for in vain.
    daemons = processes_of(run_dir, RoleKind.SUPERVISOR, RoleKind.NIMBUS)
    for process in daemons:
        signal_marked(process, run_dir, signal.SIGTERM)
    for process in found:
        # A stopped process takes no other signal until it is continued.
        signal_marked(process, run_dir, signal.SIGCONT)
    if daemons:
        await_none(run_dir, STOP_GRACE_SECS + STOP_MARGIN_SECS)
    require_none(kill(run_dir))
    run_dir.remove_sockets()
    return len(found)


def kill(run_dir: RunDir, *roles: Role | RoleKind) -> list[psutil.Process]:
    """Kill the processes of these roles, or all, and wait for their ends; returns those that do not end."""
    deadline = time.monotonic() + STOP_MARGIN_SECS
    while (left := processes_of(run_dir, *roles)) and time.monotonic() < deadline:
        for process in left:
            signal_marked(process, run_dir, signal.SIGKILL)
        time.sleep(_POLL_SECS)
    return left


def require_none(processes: list[psutil.Process]) -> None:
    """ClusterError if there are processes: they do not end."""
    if processes:
        raise ClusterError(f"processes {', '.join(str(process.pid) for process in processes)} do not end")


def await_none(run_dir: RunDir, secs: float) -> list[psutil.Process]:
    """Wait until no process of the cluster is left; returns those that are left after `secs`."""
    deadline = time.monotonic() + secs
    while (left := processes_of(run_dir)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECS)
    return left


def last_words(run_dir: RunDir, daemon: str, since_bytes: int = 0) -> str:
    """The last line of a daemon's log after its first `since_bytes`; without one, what keeps it from writing, or "".
    """
    try:
        lines = run_dir.daemon_log(daemon).read_bytes()[since_bytes:].decode(errors="replace").strip().splitlines()
    except FileNotFoundError:
        lines = []
    # On a full disk, there are no last words.
    return lines[-1] if lines else room_error(run_dir.durable)
