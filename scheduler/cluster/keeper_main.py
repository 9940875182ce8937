"""The keeper's process: the parent of a standing cluster's daemons, which restarts those that die.

Guarantees
    * It reports the start, good or bad, once, on `--report-fd`, and ends when no daemon is left. If it is killed,
      nothing else ends, and a daemon starts the next keeper (`scheduler.common.keeper_watch`), which adopts them all.
    * A run directory has at most one at any time: it holds the keeper's lock.
    * Daemons are forked from it with their imports done: interpreter start and imports dominate a daemon's restart
      time. So they run the code that was on disk when the keeper was started.

Relies on: being a session of its own, having one thread and never a ZeroMQ context (daemons make theirs after the
fork), and `scheduler.cluster.standing.stop_cluster` to end it before the daemons.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import time
from collections.abc import Sequence

import msgspec

from squall.engine.errors import ClusterError, SquallError, UsageError
from squall.engine.foreign.plain_text import plain
from squall.ipc.private import UMASK, naming
from squall.ipc.run_parent import try_flock
from squall.ipc.rundir import RunDir
from squall.scheduler.cluster.keeper import Keeper
from squall.scheduler.cluster.keeper_process import Began, kept_command
from squall.scheduler.cluster.standing import adopt_cluster, start_cluster
from squall.scheduler.common.process_record import begin_record, end_record, present_record
from squall.scheduler.common.process_title import MODULES, Kind, Role, show_role
from squall.scheduler.forking.parent import preload
from squall.scheduler.nimbus import main as nimbus_main
from squall.scheduler.supervisor import main as supervisor_main

PRELOADED = (nimbus_main, supervisor_main)
"""Modules imported here for the daemons."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    prog = f"python -m {MODULES[Kind.KEEPER]}"
    parser = argparse.ArgumentParser(prog=prog, description="keeps a cluster's daemons")
    parser.add_argument("--dir", required=True, help="run directory")
    parser.add_argument("--nodes", type=int, required=True, help="supervisors")
    parser.add_argument("--slots", type=int, required=True, help="worker slots of each")
    parser.add_argument("--report-fd", type=int, help="descriptor that is told how the start went")
    parser.add_argument("--starting-fd", type=int, help="descriptor of the right to start a cluster")
    parser.add_argument("--lock-fd", type=int, help="descriptor of the keeper's lock: adopt what runs, start nothing")
    parser.add_argument("--lifeline", type=int, help="descriptor whose end of file means to daemons: stop everything")
    parser.add_argument("--no-faults", action="store_true", help="refuse to break anything on purpose")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    show_role(Role(Kind.KEEPER))
    os.umask(UMASK)
    return _start(options) if options.lock_fd is None else _adopt(options)


def _start(options: argparse.Namespace) -> int:
    try:
        with naming(options.dir):
            run_dir = RunDir.open(options.dir)
            lock = try_flock(run_dir.keeper_lock)
            if lock is None:
                raise ClusterError(f"{run_dir.path} has a keeper already")
            _say_who(run_dir, options)
            try:
                daemons = start_cluster(
                    run_dir, options.nodes, options.slots, options.lifeline, faults=not options.no_faults
                )
            except BaseException:
                end_record(run_dir.keeper_record, 1)
                raise
    except (SquallError, OSError) as error:
        _report(options.report_fd, Began(str(error), isinstance(error, UsageError)))
        # Keep the right to start until this process ends: its next holder must not find this process.
        return 1
    os.close(options.starting_fd)
    _report(options.report_fd, Began())
    # Only now, when no command waits: daemons that are forked later have their workers' imports done as well.
    preload()
    return _keep(run_dir, Keeper(daemons, random.Random(), _log))


def _adopt(options: argparse.Namespace) -> int:
    """Succeed a keeper that died."""
    try:
        with naming(options.dir):
            run_dir = RunDir.open(options.dir)
            if present_record(run_dir.keeper_record) is None:
                # The cluster was told to end meanwhile.
                return 0
            _say_who(run_dir, options)
            daemons = adopt_cluster(
                run_dir, options.nodes, options.slots, options.lifeline, faults=not options.no_faults
            )
    except (SquallError, OSError) as error:
        _log(str(error))
        return 1
    _log("the keeper had died; this one has adopted what runs")
    keeper = Keeper(daemons, random.Random(), _log)
    # First restart daemons that died meanwhile.
    keeper.tick(time.monotonic())
    preload()
    return _keep(run_dir, keeper)


def _say_who(run_dir: RunDir, options: argparse.Namespace) -> None:
    command = kept_command(run_dir, options.nodes, options.slots, not options.no_faults)
    try:
        begin_record(run_dir.keeper_record, tuple(command))
    except OSError as error:
        _log(f"cannot write {run_dir.keeper_record}: {error.strerror}; no other keeper will be started")


def _keep(run_dir: RunDir, keeper: Keeper) -> int:
    keeper.run()
    end_record(run_dir.keeper_record, 0)
    return 0


def _report(fd: int, began: Began) -> None:
    try:
        os.write(fd, msgspec.json.encode(began))
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
