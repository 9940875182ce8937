"""The commands for a standing cluster as a whole: up, down, and its daemons alone, as a service manager wants them."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from squall.cli.cluster_access import directory_option, left_pending, tell_away, tell_unknown
from squall.cli.interrupts import Interrupts
from squall.cli.options import Seconds, json_option
from squall.cli.output import note
from squall.cli.screen import show
from squall.cli.steering.ui import tell_link, ui_options, ui_port_option
from squall.engine.errors import UsageError
from squall.engine.foreign.text import plural
from squall.ipc.rundir import RunDir
from squall.scheduler.client.standing import cluster_path, open_cluster, patient_client
from squall.scheduler.cluster.keeper_process import KeeperProcess
from squall.scheduler.cluster.starting import SMALLEST_SLOTS, check_cluster, ports_of, start_cluster, take_directory
from squall.scheduler.cluster.stopping import StoppedCluster, stop_cluster
from squall.scheduler.common.restart_policy import RestartPolicyOptions
from squall.scheduler.common.role import MODULES, RoleKind, check_node_name, daemon_environment, end_lost, interpreter

DEFAULT_SLOTS = SMALLEST_SLOTS
"""Slots per node: as many as in Storm's supervisor.slots.ports."""
_POLL_SECS = 0.05

slots_option = click.option(
    "--slots", type=int, default=DEFAULT_SLOTS, show_default=True, help="Worker slots of each node."
)
drain_option = click.option(
    "-w", "--wait", "drain_secs", type=Seconds(), default=30.0, show_default=True, metavar="SECS",
    help="Longest wait for pending messages at the end.",
)


@click.command("up")
@click.option("--nodes", type=int, default=1, show_default=True, help="Nodes (supervisors).")
@slots_option
@directory_option
@click.option("--detach", is_flag=True, help="Return when the cluster answers; it runs until squall down.")
@drain_option
@click.option("--zookeeper", metavar="HOSTS", help="Keep the store in ZooKeeper, and a second Nimbus that takes over.")
@click.option("--ui", "with_ui", is_flag=True, help="Serve a web page, as one more daemon; see squall ui.")
@ui_port_option
@json_option
def up_command(
    nodes: int, slots: int, directory: str | None, detach: bool, drain_secs: float, as_json: bool,
    zookeeper: str | None, **page: Any,
) -> None:
    """Start a standing cluster: Nimbus and supervisors.

    In the foreground it runs until Ctrl-C or SIGTERM, which drain and stop it; a second one does not wait. Topologies
    that were running when a cluster in this directory was stopped go on. A daemon that dies is started again by the
    cluster's keeper, a process that --detach leaves behind. Exit code 0: stopped by SIGTERM or squall down; 1: it ended
    undrained, because its daemons were dead or did not answer; 130: stopped by Ctrl-C; 143: SIGTERM came twice.
    """
    with Interrupts() as interrupts:
        path, ui = cluster_path(directory), ui_options(**page)

        if zookeeper is not None or RunDir(path).zookeeper.exists():
            _reach_zookeeper(path, zookeeper, interrupts)

        def start() -> KeeperProcess:
            return start_cluster(path, nodes, slots, adopts=True, is_bound=not detach, to_log=detach, ui=ui)

        keeper = start()
        run_dir = keeper.run_dir
        with patient_client(run_dir, tell_away) as client:
            cluster = client.get_cluster()
        kept = [record.name for record in cluster.topologies]
        lines = [f"cluster of {plural(nodes, 'node')} with {plural(slots, 'slot')} each runs in {run_dir.path}"]
        if kept:
            lines.append(f"{plural(len(kept), 'earlier topology goes', 'earlier topologies go')} on: {', '.join(kept)}")
        lines.append(f"{'squall down' if detach else 'Ctrl-C, SIGTERM or squall down'} stops it")
        document = {"dir": str(run_dir.path), "nodes": nodes, "slots": slots, "topologies": kept}
        show(as_json, document, [lines])
        if ui is not None:
            tell_link(run_dir, interrupts)
        tell_unknown(cluster.unknown)
        tell_ready()
        if not detach:
            raise click.exceptions.Exit(interrupts.code_after_drain(_follow(keeper, start, drain_secs, interrupts)))
        if interrupts.count:
            stop_cluster(run_dir, 0.0)
            raise click.exceptions.Exit(interrupts.exit_code)


def _reach_zookeeper(path: Path, hosts: str | None, interrupts: Interrupts) -> None:
    """Wait for ZooKeeper; note that the store is to be there, if that was given."""
    from squall.scheduler.nimbus.zookeeper import await_answer, place_of, put_in_zookeeper

    run_dir = take_directory(path)

    def is_over() -> bool:
        return interrupts.count > 0

    if hosts is None:
        await_answer(place_of(run_dir)[0], note, is_over)
    else:
        put_in_zookeeper(run_dir, hosts, note, is_over)
    if is_over():
        raise click.exceptions.Exit(interrupts.exit_code)


def tell_ready() -> None:
    """Tell systemd, in a unit of Type=notify, that the cluster is ready. Does nothing elsewhere."""
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if not address:
        return
    # An abstract address begins with @ in the environment, but with NUL in the kernel.
    name = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, contextlib.suppress(OSError):
        # If the setter of the variable does not listen, it waits for nothing.
        notify.sendto(b"READY=1", name)


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
        forced = not _stop(keeper.run_dir, drain_secs, interrupts, 2).by_nimbus
    keeper.close()
    return int(forced)


def _stop(run_dir: RunDir, drain_secs: float, interrupts: Interrupts, most: int) -> StoppedCluster:
    """Drain and stop a cluster, until `most` interrupts have come, and tell on stderr what it left."""
    began = time.monotonic()
    stopped = stop_cluster(run_dir, drain_secs, lambda: interrupts.count >= most)
    waited_secs = time.monotonic() - began
    for name, left in stopped.pending.items():
        if left or left.waiting or left.untracked:
            note(f"{name}: {left_pending(left, drain_secs, waited_secs)}")
    count = plural(stopped.killed, "process", "processes")
    if stopped.is_silent:
        note(f"Nimbus does not answer; ended {count} without draining")
    elif stopped.killed:
        note(f"{count} ended without Nimbus{'' if stopped.by_nimbus else ', undrained'}")
    return stopped


@click.command("down")
@directory_option
@drain_option
@json_option
def down_command(directory: str | None, drain_secs: float, as_json: bool) -> None:
    """Stop a standing cluster: spouts first, workers when nothing is pending, then the daemons.

    Its topologies are kept and go on with the next squall up.
    """
    try:
        run_dir = open_cluster(directory)
    except UsageError:
        path = cluster_path(directory)
        if (path.exists() and not path.is_dir()) or not (killed := end_lost(RunDir(path))):
            raise
        text = (
            f"{plural(killed, 'process', 'processes')} of the cluster in {path} ended, undrained: "
            f"the directory was removed, or has lost its key"
        )
        show(as_json, {"dir": str(path), "pending": {}, "killed": killed}, text)
        return
    with Interrupts() as interrupts:
        stopped = _stop(run_dir, drain_secs, interrupts, 1)
    kept = f"; kept for the next squall up: {', '.join(stopped.pending)}" if stopped.pending else ""
    document = {
        "dir": str(run_dir.path),
        "pending": stopped.pending,
        "waiting": {name: left.waiting for name, left in stopped.pending.items()},
        "untracked_unexecuted": {name: left.untracked for name, left in stopped.pending.items()},
        "killed": stopped.killed,
    }
    show(as_json, document, f"cluster in {run_dir.path} is stopped{kept}")
    if interrupts.count:
        raise click.exceptions.Exit(interrupts.exit_code)


@click.command("nimbus")
@directory_option
def nimbus_command(directory: str | None) -> None:
    """Run Nimbus until Ctrl-C. Supervisors and workers run on without it, and the next one takes up what is on disk."""
    _become(RoleKind.NIMBUS, directory, "--alone")


@click.command("supervisor")
@click.option("--node", required=True, help="Name of the node.")
@slots_option
@click.option("--max-deaths", type=click.IntRange(0, 50), default=RestartPolicyOptions.max_deaths, show_default=True,
              help=f"Deaths of a worker allowed in {RestartPolicyOptions.period_secs:g} s; then its slot is FAILED.")
@drain_option
@directory_option
def supervisor_command(node: str, slots: int, max_deaths: int, drain_secs: float, directory: str | None) -> None:
    """Run the supervisor of one node until Ctrl-C or SIGTERM. Start it before or after Nimbus.

    At the end its topologies are drained and move to other nodes, or wait for a slot. Told twice, it ends at once.
    """
    check_cluster(1, slots)
    check_node_name(node)
    arguments = ("--node", node, "--ports", ports_of(slots), "--max-deaths", str(max_deaths),
                 "--drain-secs", str(drain_secs))
    _become(RoleKind.SUPERVISOR, directory, *arguments)


def _become(kind: RoleKind, directory: str | None, *arguments: str) -> NoReturn:
    run_dir = take_directory(cluster_path(directory))
    command = [*interpreter(MODULES[kind]), "--dir", str(run_dir.path), *arguments]
    os.execve(command[0], command, daemon_environment(run_dir))
