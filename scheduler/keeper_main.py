"""The process that keeps a standing cluster: parent of the cluster's daemons, it starts those again that die.

Guarantees
    * It reports the start, good or bad, once, on `--report-fd`, and ends when no daemon is left. When it is killed,
      nothing else ends; nobody starts daemons again then.
    * Daemons are forked from it, with all they need imported already: what an interpreter takes to start, and to import
      it, is most of what a daemon that died would be away. So they run the code that was on disk when it was started.

Relies on: being a session of its own, having one thread and never a ZeroMQ context (daemons make theirs after the
fork), and `scheduler.standing.stop_cluster` to end it where it would be in the way.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence

import msgspec

from engine.errors import SquallError, UsageError
from ipc.rundir import RunDir
from scheduler import nimbus_main, supervisor_main
from scheduler.keeper import Keeper
from scheduler.keeper_process import Began
from scheduler.process_title import set_title
from scheduler.standing import start_cluster
from scheduler.zygote import preload

PRELOADED = (nimbus_main, supervisor_main)
"""Imported for the daemons."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scheduler.keeper_main", description="keeps a cluster's daemons")
    parser.add_argument("--dir", required=True, help="run directory")
    parser.add_argument("--nodes", type=int, required=True, help="supervisors")
    parser.add_argument("--slots", type=int, required=True, help="worker slots of each")
    parser.add_argument("--report-fd", type=int, required=True, help="descriptor that is told how the start went")
    parser.add_argument("--lifeline", type=int, help="descriptor whose end of file means to daemons: stop everything")
    parser.add_argument("--room", help="blanks: room for the daemons' command lines (see scheduler.process_title)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.room is not None:
        # The last two arguments.
        set_title(sys.orig_argv[:-2])
    os.umask(0o077)
    try:
        daemons = start_cluster(RunDir.open(options.dir), options.nodes, options.slots, options.lifeline)
    except (SquallError, OSError) as error:
        _report(options.report_fd, Began(str(error), isinstance(error, UsageError)))
        return 1
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
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
