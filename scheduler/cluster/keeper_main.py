"""The process that keeps a standing cluster: parent of the cluster's daemons, it starts those again that die.

Guarantees
    * It reports the start, good or bad, once, on `--report-fd`, and ends when no daemon is left. When it is killed,
      nothing else ends; nobody starts daemons again then.
    * Daemons are forked from it, with all they need imported already: what an interpreter takes to start, and to import
      it, is most of what a daemon that died would be away. So they run the code that was on disk when it was started.

Relies on: being a session of its own, having one thread and never a ZeroMQ context (daemons make theirs after the
fork), and `scheduler.cluster.standing.stop_cluster` to end it where it would be in the way.
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

from squall.engine.errors import SquallError, UsageError
from squall.engine.foreign.plain_text import plain
from squall.ipc.private import UMASK, naming
from squall.ipc.rundir import RunDir
from squall.scheduler.cluster.keeper import Keeper
from squall.scheduler.cluster.keeper_process import Began
from squall.scheduler.cluster.standing import start_cluster
from squall.scheduler.forking.parent import preload
from squall.scheduler.forking.process_title import set_title
from squall.scheduler.nimbus import main as nimbus_main
from squall.scheduler.supervisor import main as supervisor_main

PRELOADED = (nimbus_main, supervisor_main)
"""Imported for the daemons."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    prog = "python -m squall.scheduler.cluster.keeper_main"
    parser = argparse.ArgumentParser(prog=prog, description="keeps a cluster's daemons")
    parser.add_argument("--dir", required=True, help="run directory")
    parser.add_argument("--nodes", type=int, required=True, help="supervisors")
    parser.add_argument("--slots", type=int, required=True, help="worker slots of each")
    parser.add_argument("--report-fd", type=int, required=True, help="descriptor that is told how the start went")
    parser.add_argument("--starting-fd", type=int, required=True, help="descriptor of the right to start a cluster")
    parser.add_argument("--lifeline", type=int, help="descriptor whose end of file means to daemons: stop everything")
    parser.add_argument("--room", help="blanks: room for the daemons' command lines")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.room is not None:
        # The last two arguments.
        set_title(sys.orig_argv[:-2])
    os.umask(UMASK)
    try:
        with naming(options.dir):
            daemons = start_cluster(RunDir.open(options.dir), options.nodes, options.slots, options.lifeline)
    except (SquallError, OSError) as error:
        _report(options.report_fd, Began(str(error), isinstance(error, UsageError)))
        # The right to start ends with this process: the next to have it must not find it still there.
        return 1
    os.close(options.starting_fd)
    _report(options.report_fd, Began())
    # Only now, when nobody waits: daemons that are forked later have in it what their workers need as well.
    preload()
    Keeper(daemons, random.Random(), _log).run()
    return 0


def _report(fd: int, began: Began) -> None:
    try:
        os.write(fd, msgspec.json.encode(began))
    except BrokenPipeError:
        _log("whoever started this cluster has gone")
    os.close(fd)


def _log(line: str) -> None:
    # A full disk takes no line, and must not end the keeper: commands find out by themselves why a daemon is away.
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {plain(line)}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
