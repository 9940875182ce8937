"""`squall down`: stop a standing cluster."""

from __future__ import annotations

import time

import click

from squall.cli.checks import seconds
from squall.cli.interrupts import Interrupts
from squall.cli.standing import directory_option, json_option, show
from squall.cli.up import DRAIN_SECS, tell
from squall.engine.errors import UsageError
from squall.engine.foreign.plain_text import plain
from squall.engine.plural import plural
from squall.ipc.rundir import RunDir
from squall.scheduler.client.standing import cluster_path, open_cluster
from squall.scheduler.cluster.stopping import end_lost, stop_cluster


@click.command("down")
@directory_option
@click.option("-w", "--wait", "drain_secs", type=float, default=DRAIN_SECS, show_default=True, metavar="SECS",
              callback=seconds(), help="Longest wait for pending messages.")
@json_option
def down_command(directory: str | None, drain_secs: float, as_json: bool) -> None:
    """Stop a standing cluster: spouts first, workers when nothing is pending, then the daemons.

    Its topologies are kept and go on with the next squall up.
    """
    try:
        run_dir = open_cluster(directory)
    except UsageError:
        path = cluster_path(directory)
        if (path.exists() and not path.is_dir()) or not _end_lost(RunDir(path), as_json):
            raise
        return
    began = time.monotonic()
    with Interrupts() as interrupts:
        stopped = stop_cluster(run_dir, drain_secs, lambda: interrupts.count > 0)
    if not stopped.pending and not stopped.killed:
        text = f"cluster in {plain(run_dir.path)} is stopped"
    else:
        names = ", ".join(stopped.pending)
        text = f"cluster in {plain(run_dir.path)} is stopped"
        text += f"; kept for the next squall up: {names}" if names else ""
    tell(stopped, drain_secs, time.monotonic() - began)
    document = {
        "dir": str(run_dir.path),
        "pending": stopped.pending,
        "waiting": {name: left.waiting for name, left in stopped.pending.items()},
        "untracked_unexecuted": {name: left.untracked for name, left in stopped.pending.items()},
        "killed": stopped.killed,
    }
    show(as_json, document, text)
    if interrupts.count:
        raise click.exceptions.Exit(interrupts.exit_code)


def _end_lost(run_dir: RunDir, as_json: bool) -> int:
    """End a cluster whose directory was removed, or has lost its key. Returns the number of processes ended."""
    killed = end_lost(run_dir)
    if killed:
        text = (
            f"{plural(killed, 'process', 'processes')} of the cluster in {run_dir.path} ended, undrained: "
            f"the directory was removed, or has lost its key"
        )
        show(as_json, {"dir": str(run_dir.path), "pending": {}, "killed": killed}, text)
    return killed
