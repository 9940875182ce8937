"""`squall up`: a standing cluster, in the foreground or detached."""

from __future__ import annotations

import random
import time

import click

from ipc.rundir import RunDir
from scheduler.cluster_size import SMALLEST_SLOTS
from scheduler.daemons import Daemons
from scheduler.keeper import Keeper
from scheduler.standing import Stopped, start_cluster, start_kept, stop_cluster
from squall.cli.interrupts import Interrupts
from squall.cli.standing import cluster_path, directory_option, json_option, left_pending, patient_client, plural, show

DEFAULT_SLOTS = SMALLEST_SLOTS
"""As Storm's supervisor.slots.ports."""
DRAIN_SECS = 30.0
_POLL_SECS = 0.05


@click.command("up")
@click.option("--nodes", type=int, default=1, show_default=True, help="Nodes (supervisors).")
@click.option("--slots", type=int, default=DEFAULT_SLOTS, show_default=True, help="Worker slots of each node.")
@directory_option
@click.option("--detach", is_flag=True, help="Return when the cluster answers; it runs until squall down.")
@click.option("-w", "--wait", "drain_secs", type=click.FloatRange(0), default=DRAIN_SECS, show_default=True,
              metavar="SECS", help="Longest wait for pending messages at the end (not with --detach).")
@json_option
def up_command(
    nodes: int, slots: int, directory: str | None, detach: bool, drain_secs: float, as_json: bool
) -> None:
    """Start a standing cluster: Nimbus and supervisors.

    In the foreground it runs until Ctrl-C, which drains and stops it; a second Ctrl-C does not wait. What topologies a
    cluster in this directory was running when it was stopped go on. A daemon that dies is started again: by this
    command, or by the keeper process that --detach leaves behind.
    """
    with Interrupts() as interrupts:
        path = cluster_path(directory)
        daemons = None
        if detach:
            run_dir = start_kept(path, nodes, slots)
        else:
            run_dir, daemons = start_cluster(path, nodes, slots, bound=True)
        with patient_client(run_dir) as client:
            kept = [record.name for record in client.get_cluster().topologies]
        text = f"cluster of {plural(nodes, 'node')} with {plural(slots, 'slot')} each runs in {run_dir.path}"
        if kept:
            text += f"\n{plural(len(kept), 'topology', 'topologies')} of before go on: {', '.join(kept)}"
        text += "\nsquall down stops it" if detach else "\nCtrl-C stops it"
        document = {"dir": str(run_dir.path), "nodes": nodes, "slots": slots, "topologies": kept}
        show(as_json, document, text)
        if daemons is not None:
            _follow(run_dir, daemons, drain_secs, interrupts)
        elif interrupts.count:
            stop_cluster(run_dir, 0.0)
    raise click.exceptions.Exit(interrupts.exit_code if interrupts.count else 0)


def _follow(run_dir: RunDir, daemons: Daemons, drain_secs: float, interrupts: Interrupts) -> None:
    """Until interrupted, or until somebody else has stopped the cluster."""
    keeper = Keeper(daemons, random.Random(), lambda line: click.echo(line, err=True))
    while not interrupts.count and not keeper.is_done:
        keeper.turn(time.monotonic())
        daemons.await_end(_POLL_SECS)
    if interrupts.count and daemons.count:
        click.echo(f"draining for up to {drain_secs:g} s; interrupt again to stop at once", err=True)
        tell(stop_cluster(run_dir, drain_secs, lambda: interrupts.count > 1), drain_secs)
    daemons.reap(time.monotonic() + 1.0)


def tell(stopped: Stopped, drain_secs: float) -> None:
    """What was pending, on stderr."""
    for name, pending in stopped.pending.items():
        if pending:
            click.echo(f"{name}: {left_pending(pending, drain_secs)}", err=True)
    if stopped.killed:
        click.echo(f"{plural(stopped.killed, 'process', 'processes')} ended without Nimbus, undrained", err=True)
