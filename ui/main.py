"""The process of a cluster's web page, as a daemon of its keeper. It is a client like any other: that it dies or hangs
is nothing to the topologies."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from squall.ipc.rundir import RunDir
from squall.scheduler.common.daemon import daemon_parser, run_daemon, tell_ready
from squall.scheduler.common.role import RoleKind
from squall.ui.server import UiOptions, serve


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = daemon_parser(RoleKind.UI, "the cluster's web page")
    parser.add_argument("--port", type=int, help="port; by default the first free one")
    return parser.parse_args(arguments)


def _work(options: argparse.Namespace) -> None:
    run_dir = RunDir.open(options.dir)
    serve(run_dir, UiOptions(port=options.port), lambda _: tell_ready(options.ready_fd), options.lifeline)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_daemon(RoleKind.UI, lambda: parse(arguments), _work)


if __name__ == "__main__":
    sys.exit(main())
