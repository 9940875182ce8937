"""The process that `squall up --detach` leaves behind: parent of the cluster's daemons, it starts those again that die.

Guarantees: it reports the start, good or bad, once, on `--report-fd`, and ends when no daemon is left. When it is
killed, nothing else ends; nobody starts daemons again then.

Relies on: being a session of its own, and `scheduler.standing.stop_cluster` to end it where it would be in the way.
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
from scheduler.keeper import Keeper
from scheduler.standing import Began, start_cluster


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scheduler.keeper_main", description="keeps a cluster's daemons")
    parser.add_argument("--dir", required=True, help="run directory")
    parser.add_argument("--nodes", type=int, required=True, help="supervisors")
    parser.add_argument("--slots", type=int, required=True, help="worker slots of each")
    parser.add_argument("--report-fd", type=int, required=True, help="descriptor that is told how the start went")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    os.set_inheritable(options.report_fd, False)
    os.umask(0o077)
    try:
        _, daemons = start_cluster(options.dir, options.nodes, options.slots, bound=False)
    except (SquallError, OSError) as error:
        _report(options.report_fd, Began(str(error), isinstance(error, UsageError)))
        return 1
    _report(options.report_fd, Began())
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
