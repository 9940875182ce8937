"""`squall up`: a standing cluster, in the foreground or detached."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click

from squall.cli.checks import seconds
from squall.cli.interrupts import Interrupts, ctrl_c_reaches_us
from squall.cli.output import note
from squall.cli.standing import (
    directory_option,
    json_option,
    left_pending,
    no_faults_option,
    show,
    tell_away,
    tell_unknown,
)
from squall.cli.systemd_unit import tell_ready, unit
from squall.engine.errors import UsageError
from squall.engine.foreign.plain_text import plain
from squall.engine.plural import plural
from squall.ipc.run_parent import other_durables
from squall.ipc.rundir import RunDir
from squall.scheduler.client.standing import cluster_path, patient_client
from squall.scheduler.cluster.keeper_process import KeeperProcess
from squall.scheduler.cluster.size import SMALLEST_SLOTS, check_cluster, this_machine
from squall.scheduler.cluster.starting import start_cluster
from squall.scheduler.cluster.stopping import Stopped, stop_cluster

DEFAULT_SLOTS = SMALLEST_SLOTS
"""Slots per node: as many as in Storm's supervisor.slots.ports."""
DRAIN_SECS = 30.0
_POLL_SECS = 0.05


@click.command("up")
@click.option("--nodes", type=int, default=1, show_default=True, help="Nodes (supervisors).")
@click.option("--slots", type=int, default=DEFAULT_SLOTS, show_default=True, help="Worker slots of each node.")
@directory_option
@click.option("--detach", is_flag=True, help="Return when the cluster answers; it runs until squall down.")
@click.option("-w", "--wait", "drain_secs", type=float, default=DRAIN_SECS, show_default=True, metavar="SECS",
              callback=seconds(), help="Longest wait for pending messages at the end (not with --detach).")
@click.option("--systemd", "as_unit", is_flag=True,
              help="Print a systemd user unit that keeps such a cluster, and start nothing.")
@no_faults_option
@json_option
def up_command(
    nodes: int, slots: int, directory: str | None, detach: bool, drain_secs: float, as_unit: bool, no_faults: bool,
    as_json: bool,
) -> None:
    """Start a standing cluster: Nimbus and supervisors.

    In the foreground it runs until Ctrl-C or SIGTERM, which drain and stop it; a second one does not wait. Topologies
    that were running when a cluster in this directory was stopped go on. A daemon that dies is started again by the
    cluster's keeper, a process that --detach leaves behind. Exit code 0: stopped by SIGTERM or squall down; 1: it ended
    undrained, because its daemons were dead or did not answer; 130: stopped by Ctrl-C; 143: SIGTERM came twice.
    """
    if as_unit:
        _print_unit(nodes, slots, directory, detach, drain_secs, no_faults, as_json)
        return
    with Interrupts() as interrupts:
        path = cluster_path(directory)

        def start() -> KeeperProcess:
            return start_cluster(
                path, nodes, slots, adopts=True, is_bound=not detach, faults=not no_faults, to_log=detach
            )

        keeper = start()
        run_dir = keeper.run_dir
        with patient_client(run_dir, tell_away) as client:
            cluster = client.get_cluster()
        kept = [record.name for record in cluster.topologies]
        text = f"cluster of {plural(nodes, 'node')} with {plural(slots, 'slot')} each runs in {plain(run_dir.path)}"
        if kept:
            before = plural(len(kept), "earlier topology goes", "earlier topologies go")
            text += f"\n{before} on: {', '.join(kept)}"
        by_signal = "Ctrl-C" if ctrl_c_reaches_us() else "SIGTERM or squall down"
        text += f"\n{'squall down' if detach else by_signal} stops it"
        document = {"dir": str(run_dir.path), "nodes": nodes, "slots": slots, "topologies": kept}
        show(as_json, document, text)
        tell_displaced(run_dir)
        tell_unknown(cluster.unknown)
        tell_ready()
        if not detach:
            raise click.exceptions.Exit(interrupts.code_after_drain(_follow(keeper, start, drain_secs, interrupts)))
        if interrupts.count:
            stop_cluster(run_dir, 0.0)
            raise click.exceptions.Exit(interrupts.exit_code)


def _print_unit(
    nodes: int, slots: int, directory: str | None, detach: bool, drain_secs: float, no_faults: bool, as_json: bool
) -> None:
    if detach:
        raise UsageError("--systemd and --detach exclude each other: systemd keeps a command that stays")
    check_cluster(nodes, slots, this_machine())
    text = unit(nodes, slots, None if directory is None else Path(directory), drain_secs, faults=not no_faults)
    show(as_json, {"unit": text}, text.rstrip())


def _follow(
    keeper: KeeperProcess, start: Callable[[], KeeperProcess], drain_secs: float, interrupts: Interrupts
) -> int:
    """Wait until interrupted, or until another command has stopped the cluster. Returns 1 if its end was forced."""
    code = None
    while not interrupts.count and code is None:
        code = keeper.await_end(_POLL_SECS)
        if code:
            note("the cluster's keeper was killed: another one takes over")
            # The killed one's daemons live until the next one replaces them.
            killed, keeper, code = keeper, start(), None
            killed.close()
    forced = False
    if code is None:
        note(f"draining for up to {drain_secs:g} s; interrupt again to stop at once")
        began = time.monotonic()
        stopped = stop_cluster(keeper.run_dir, drain_secs, lambda: interrupts.count > 1)
        tell(stopped, drain_secs, time.monotonic() - began)
        forced = not stopped.by_nimbus
    keeper.close()
    return int(forced)


def tell_displaced(run_dir: RunDir) -> None:
    """Say on stderr that what the cluster keeps is not where its user would look for it."""
    home, unused = other_durables(run_dir.durable)
    if home is not None:
        note(
            f"its store, state and logs are in {plain(run_dir.durable)}, not in {plain(home)}, "
            f"which could not be used when they were begun"
        )
    for other in unused:
        note(
            f"it goes on from {plain(run_dir.durable)}; {plain(other)}, made when your home could not be used, has "
            f"another store"
        )


def tell(stopped: Stopped, drain_secs: float, waited_secs: float) -> None:
    """Print the unfinished work on stderr."""
    for name, left in stopped.pending.items():
        if left or left.waiting or left.untracked:
            note(f"{plain(name)}: {left_pending(left, drain_secs, waited_secs)}")
    if stopped.is_silent:
        count = plural(stopped.killed, "process", "processes")
        note(f"Nimbus does not answer; ended {count} without draining")
    elif stopped.killed:
        undrained = "" if stopped.by_nimbus else ", undrained"
        note(f"{plural(stopped.killed, 'process', 'processes')} ended without Nimbus{undrained}")
