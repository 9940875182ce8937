"""The keeper's process: the parent of a cluster's daemons, which restarts those that die.

Guarantees
    * It imports the daemons' modules while its launcher does other things, and starts nothing before it is told to
      (`keeper_process.KeeperOrder`). Then it reports once, on its stdout, whether the cluster answers, and ends when no
      daemon is left.
    * Daemons are forked from it, with their imports done: interpreter start and imports dominate the time of a start
      and of a restart. So they run the code that was on disk when the keeper was started.
    * A run directory has at most one at any time: it holds `keeper.lock`, and removes that file when it ends. One that
      was killed leaves the file; its daemons and their workers run on, and the next keeper replaces the daemons.
    * The directory of a cluster that is bound to its launcher's life goes with the cluster, if the launcher says so.

Relies on: being a session of its own, having one thread and never a ZeroMQ context (daemons make theirs after the
fork), and `scheduler.cluster.stopping.stop_cluster` to end it before the daemons.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import sys
import time
from collections.abc import Sequence

import msgspec

from squall.engine.errors import ClusterError, SquallError, UsageError
from squall.engine.foreign.text import plain
from squall.ipc.private import UMASK, naming
from squall.ipc.run_parent import try_flock
from squall.ipc.rundir import RunDir
from squall.scheduler.cluster.daemons import Daemons
from squall.scheduler.cluster.keeper_process import BEGAN, LENGTH_BYTES, KeeperOrder
from squall.scheduler.common.daemon import note_death, write_record
from squall.scheduler.common.process import EXIT_WRONG_USE
from squall.scheduler.common.role import MODULES, Role, RoleKind, show_role
from squall.scheduler.forking.parent import preload
from squall.scheduler.nimbus import main as nimbus_main
from squall.scheduler.supervisor import main as supervisor_main

# The daemons' modules, imported here once for all of them.

PRELOADED = (nimbus_main, supervisor_main)
PRELOAD_DELAY_SECS = 2.0
"""Time for a topology to start on a busy machine before the keeper imports what only a restart needs."""


def main(arguments: Sequence[str] | None = None) -> int:
    prog = f"python -m {MODULES[RoleKind.KEEPER]}"
    parser = argparse.ArgumentParser(prog=prog, description="keeps a cluster's daemons")
    parser.add_argument("--dir", required=True, help="run directory")
    parser.add_argument("--starting-fd", type=int, help="descriptor that holds the right to start")
    parser.add_argument("--remove-dir", action="store_true", help="remove the run directory at the end")
    options = parser.parse_args(arguments)
    show_role(Role(RoleKind.KEEPER))
    os.umask(UMASK)
    run_dir = RunDir(options.dir)
    report, lifeline = os.dup(1), os.dup(0)
    os.dup2(2, 1)
    # If the order is there already, the forking parents do it, beside the start of the other daemons.
    is_early = not select.select([lifeline], [], [], 0)[0]
    if is_early:
        preload()
    order = _read_order(lifeline)
    if order is not None:
        try:
            with naming(run_dir.path):
                daemons = _start(run_dir, order, lifeline)
        except (SquallError, OSError) as error:
            _report(report, os.fsencode(str(error)))
            # Keep the right to start until this process ends: its next holder must not find this process.
            return EXIT_WRONG_USE if isinstance(error, UsageError) else 1
        if options.starting_fd is not None:
            os.close(options.starting_fd)
        _report(report, BEGAN)
        if not is_early and not daemons.await_end(PRELOAD_DELAY_SECS):
            # Only now, when the first topology has started: daemons that are forked later have these imports done.
            preload()
        daemons.keep(_log)
        run_dir.keeper_lock.unlink(missing_ok=True)
    if options.remove_dir:
        run_dir.remove()
    return 0


def _read_order(fd: int) -> KeeperOrder | None:
    """The launcher's order; None if it has ended without one."""
    with open(fd, "rb", closefd=False) as pipe:
        length = pipe.read(LENGTH_BYTES)
        body = pipe.read(int.from_bytes(length, "little"))
    return msgspec.msgpack.decode(body, type=KeeperOrder) if body else None


def _start(run_dir: RunDir, order: KeeperOrder, lifeline: int) -> Daemons:
    os.environb.clear()
    os.environb.update(order.environment)
    if order.directory:
        os.chdir(order.directory)
    had_died = run_dir.keeper_lock.exists()
    # Held until this process ends.
    if try_flock(run_dir.keeper_lock) is None:
        raise ClusterError(f"{run_dir.path} has a keeper already")
    if had_died:
        note_death(run_dir, str(RoleKind.KEEPER), "killed: noted by the next one")
    write_record(run_dir.daemon_record(str(RoleKind.KEEPER)))
    if not order.is_bound:
        os.close(lifeline)
    daemons = Daemons(run_dir, order.nodes, order.slots, lifeline if order.is_bound else None, order.ui)
    try:
        if order.adopts:
            daemons.kill_earlier()
        daemons.start()
    except BaseException:
        run_dir.keeper_lock.unlink(missing_ok=True)
        raise
    return daemons


def _report(fd: int, what: bytes) -> None:
    try:
        os.write(fd, what)
    except BrokenPipeError:
        _log("the command that started this cluster has gone")
    os.close(fd)


def _log(line: str) -> None:
    # A full disk must not end the keeper: commands find out by themselves why a daemon is away.
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {plain(line)}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
