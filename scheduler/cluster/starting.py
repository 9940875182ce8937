"""Starts a cluster in a run directory that the user named: the right to do so, which one command at a time has.

Guarantees
    * Of several commands that start a cluster in one directory at once, one gets the right, before it starts a
      process, and holds it until its Nimbus holds the directory or its processes are gone. The others start and touch
      nothing, and their error names the first.
    * The right ends with the last process that holds it, in whatever way that dies.
    * When it is taken, no daemon of an earlier cluster runs there, and no worker, but what will be adopted.

Relies on: flock, which a child that inherits the descriptor holds too.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from squall.engine.errors import UsageError
from squall.engine.plural import plural
from squall.ipc.private import naming
from squall.ipc.run_parent import try_flock
from squall.ipc.rundir import UNKNOWN, RunDir
from squall.scheduler.cluster.keeper_process import KeeperProcess
from squall.scheduler.cluster.size import check_cluster
from squall.scheduler.common.mark import processes_of, role_of
from squall.scheduler.common.process_title import Kind

_ENDING_SECS = 1.0
"""Longest wait for the processes of a cluster that is ending: some outlive their Nimbus by a moment."""
_POLL_SECS = 0.02
_PID_MAX_BYTES = 32
"""Read at most: a pid has far fewer digits."""


class InUse(UsageError):
    """A cluster runs in the directory, or is being started."""

    def __init__(self, message: str, pid: str) -> None:
        super().__init__(message)
        self.pid = pid
        """Pid of its Nimbus, or of the command that starts it; UNKNOWN if it is not written yet."""


class Starting:
    """The right, held. It ends when every process that has the descriptor has called `release` or ended."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def take(cls, run_dir: RunDir, adopts: bool = False) -> Starting:
        """Take the right, before any process is started. InUse if another command is first; UsageError if processes of
        an earlier cluster run there. With `adopts`, those of a killed keeper may, and workers that have outlived all
        daemons."""
        path = run_dir.durable / "starting"
        fd = try_flock(path)
        if fd is None:
            pid = _said(path)
            raise InUse(f"a cluster is being started in {run_dir.path} by another command (pid {pid})", pid)
        starting = cls(fd)
        try:
            with naming(path):
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            if not _check_what_runs(run_dir, adopts):
                run_dir.remove_sockets()
        except BaseException:
            starting.release()
            raise
        return starting

    def release(self) -> None:
        """Give the right up in this process. May be called again."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _said(path: os.PathLike[str]) -> str:
    """The pid that the first command wrote, for messages only; UNKNOWN if it is not written yet or was removed."""
    try:
        with open(path, "rb") as file:
            text = file.read(_PID_MAX_BYTES).strip()
    except FileNotFoundError:
        return UNKNOWN
    return str(int(text)) if text.isdigit() and os.path.exists(f"/proc/{int(text)}") else UNKNOWN


def _check_what_runs(run_dir: RunDir, adopts: bool) -> bool:
    """Whether processes are left to adopt. InUse or UsageError if others run."""
    deadline = time.monotonic() + _ENDING_SECS
    while True:
        # Look for Nimbus last: its processes are then seen with it, or after it has gone.
        left = processes_of(run_dir)
        kinds = {None if (role := role_of(process)) is None else role.kind for process in left}
        holder = run_dir.lock_holder()
        if adopts and Kind.KEEPER not in kinds and run_dir.keeper_lock.exists():
            return True
        if holder is not None:
            raise InUse(
                f"a cluster runs in {run_dir.path} already (Nimbus is pid {holder}): `squall status` shows it, "
                f"`squall down` stops it", holder,
            )
        if not left:
            return False
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL_SECS)
    # By now forking parents have ended with their supervisors; a stopped one ends when it is continued.
    if adopts and kinds <= {Kind.WORKER, Kind.FORKING_PARENT}:
        return True
    many = len(left) != 1
    raise UsageError(
        f"{plural(len(left), 'process', 'processes')} of an earlier cluster still {'run' if many else 'runs'} in "
        f"{run_dir.path}, without Nimbus: `squall nimbus` starts it again and {'they go' if many else 'it goes'} on, "
        f"`squall down` ends {'them' if many else 'it'}"
    )


def take_directory(path: str | Path) -> RunDir:
    """Make or take a run directory for a new cluster. UsageError if a cluster runs whose directory was lost."""
    run_dir = RunDir(path)
    if not run_dir.key_file.exists():
        left = processes_of(run_dir)
        # Look again: a process is marked only once there is a key, so if these belong to another program that is
        # starting a cluster here just now, the key is there.
        if left and not run_dir.key_file.exists():
            still = plural(len(left), "process of a cluster still runs", "processes of a cluster still run")
            raise UsageError(
                f"{still} whose directory {run_dir.path} was removed, or has lost its key: `squall down --dir "
                f"{run_dir.path}` ends {'it' if len(left) == 1 else 'them'}"
            )
    with naming(run_dir.path):
        return RunDir.create(path)


def start_cluster(
    path: str | Path, nodes: int, slots: int, *, adopts: bool = False, is_bound: bool = True, to_log: bool = True
) -> KeeperProcess:
    """Start a cluster in a named directory; returns when it answers. `adopts`: what earlier daemons, or their keeper,
    have left when they were killed goes on. For the others, see `KeeperProcess`."""
    check_cluster(nodes, slots)
    run_dir = take_directory(path)
    # Take the right before starting the keeper: two commands would take each other's keepers for an older cluster's.
    starting = Starting.take(run_dir, adopts)
    try:
        keeper = KeeperProcess(run_dir, starting.fd, to_log=to_log)
        try:
            keeper.start(nodes, slots, is_bound=is_bound, adopts=adopts)
        except BaseException:
            keeper.close()
            raise
        return keeper
    finally:
        starting.release()
