"""`squall down`: stop a standing cluster."""

from __future__ import annotations

import click

from scheduler.standing import stop_cluster
from squall.cli.interrupts import Interrupts
from squall.cli.standing import directory_option, json_option, open_cluster, show
from squall.cli.up import DRAIN_SECS, tell


@click.command("down")
@directory_option
@click.option("-w", "--wait", "drain_secs", type=click.FloatRange(0), default=DRAIN_SECS, show_default=True,
              metavar="SECS", help="Longest wait for pending messages.")
@json_option
def down_command(directory: str | None, drain_secs: float, as_json: bool) -> None:
    """Stop a standing cluster: spouts first, workers when nothing is pending, then the daemons.

    Its topologies are kept and go on with the next squall up.
    """
    run_dir = open_cluster(directory)
    with Interrupts() as interrupts:
        stopped = stop_cluster(run_dir, drain_secs, lambda: interrupts.count > 0)
    if not stopped.pending and not stopped.killed:
        text = f"cluster in {run_dir.path} is stopped"
    else:
        names = ", ".join(stopped.pending)
        text = f"cluster in {run_dir.path} is stopped" + (f"; kept for the next squall up: {names}" if names else "")
    tell(stopped, drain_secs)
    show(as_json, {"dir": str(run_dir.path), "pending": stopped.pending, "killed": stopped.killed}, text)
    if interrupts.count:
        raise click.exceptions.Exit(interrupts.exit_code)
