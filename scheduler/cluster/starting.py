"""Starts a cluster in a run directory that the user named: room for it on the machine, and the right to start it, which
one command at a time has.

Guarantees
    * A number of nodes or slots that the machine's memory cannot hold is refused, so that a typing error does not
      exhaust it. The default cluster, one node with `SMALLEST_SLOTS` slots, is never refused: memory may become free in
      time. The needs of components are not known before they run, and do not count.
    * Of several commands that start a cluster in one directory at once, one gets the right, before it starts a
      process, and holds it until its Nimbus holds the directory or its processes are gone. The others start and touch
      nothing.
    * The right ends with the last process that holds it, in whatever way that dies.
    * When it is taken, no daemon of an earlier cluster runs there, and no worker, but what will be adopted.

Relies on: flock, which a child that inherits the descriptor holds too.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from squall.engine.errors import UsageError
from squall.engine.foreign.text import plural
from squall.ipc.private import naming
from squall.ipc.run_parent import try_flock
from squall.ipc.rundir import RunDir
from squall.scheduler.cluster.keeper_process import KeeperProcess
from squall.scheduler.common.role import RoleKind, processes_of, role_of

SMALLEST_SLOTS = 4
FIRST_PORT, LAST_PORT = 6700, 65535
NODE_MB, WORKER_MB = 64, 32
"""A supervisor with its forking parent occupies 30 to 60 MB, a worker without components 10 to 30, depending on the
part that is shared."""
_ENDING_SECS = 1.0
"""Longest wait for the processes of a cluster that is ending: some outlive their Nimbus by a moment."""
_POLL_SECS = 0.02


def check_cluster(nodes: int, slots: int) -> None:
    """UsageError unless the machine has room for so many nodes with so many slots each. Call it before any start."""
    for what, count in (("nodes", nodes), ("slots", slots)):
        if not isinstance(count, int) or count < 1:
            raise UsageError(f"{what} is {count!r}; allowed: an integer from 1 up")
    most = LAST_PORT - FIRST_PORT + 1
    if slots > most:
        raise UsageError(f"slots is {slots}; a node has at most {most}, one for each port from {FIRST_PORT} up")
    needed, available = nodes * (NODE_MB + slots * WORKER_MB), psutil.virtual_memory().available >> 20
    if needed > available and (nodes > 1 or slots > SMALLEST_SLOTS):
        raise UsageError(
            f"nodes is {nodes}, with {slots} slots each: that takes {needed} MB of memory, and {available} MB are "
            "available; choose fewer"
        )


def ports_of(slots: int) -> str:
    """The ports of a node with so many slots, for the supervisor's command line."""
    return ",".join(str(FIRST_PORT + slot) for slot in range(slots))


def check_workers(workers: int, nodes: int) -> None:
    """UsageError unless the machine has room for so many workers on so many nodes."""
    check_cluster(nodes, -(-workers // max(1, nodes)))


@contextlib.contextmanager
def right_to_start(run_dir: RunDir, adopts: bool = False) -> Iterator[int]:
    """Hold the right, as a descriptor, before any process is started. It ends when every process that has the
    descriptor has closed it or ended.

    UsageError if another command is first, or if processes of an earlier cluster run there. With `adopts`, those of a
    killed keeper may, and workers that have outlived all daemons.
    """
    fd = try_flock(run_dir.durable / "starting")
    if fd is None:
        raise UsageError(f"a cluster is being started in {run_dir.path} by another command")
    try:
        if not _check_what_runs(run_dir, adopts):
            run_dir.remove_sockets()
        yield fd
    finally:
        os.close(fd)


def _check_what_runs(run_dir: RunDir, adopts: bool) -> bool:
    """Return whether processes are left to adopt. UsageError if others run."""
    deadline = time.monotonic() + _ENDING_SECS
    while True:
        # Look for Nimbus last: its processes are then seen with it, or after it has gone.
        left = processes_of(run_dir)
        kinds = {None if (role := role_of(process)) is None else role.kind for process in left}
        holder = run_dir.lock_holder()
        if adopts and RoleKind.KEEPER not in kinds and run_dir.keeper_lock.exists():
            return True
        if holder is not None:
            raise UsageError(
                f"a cluster runs in {run_dir.path} already (Nimbus is pid {holder}): `squall status` shows it, "
                f"`squall down` stops it"
            )
        if not left:
            return False
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL_SECS)
    # By now forking parents have ended with their supervisors; a stopped one ends when it is continued, its spares too.
    if adopts and kinds <= {RoleKind.WORKER, RoleKind.FORKING_PARENT, RoleKind.SPARE}:
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
    path: str | Path, nodes: int, slots: int, *, adopts: bool = False, is_bound: bool = True, to_log: bool = True,
    ui: Sequence[str] | None = None,
) -> KeeperProcess:
    """Start a cluster in a named directory; returns when it answers. `adopts`: what earlier daemons, or their keeper,
    have left when they were killed goes on. For the others, see `KeeperProcess`."""
    check_cluster(nodes, slots)
    run_dir = take_directory(path)
    # Take the right before starting the keeper: two commands would take each other's keepers for an older cluster's.
    with right_to_start(run_dir, adopts) as right:
        keeper = KeeperProcess(run_dir, right, to_log=to_log)
        try:
            keeper.start(nodes, slots, is_bound=is_bound, adopts=adopts, ui=ui)
        except BaseException:
            keeper.close()
            raise
        return keeper
