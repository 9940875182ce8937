"""`squall nimbus` and `squall supervisor`: one daemon, in the foreground, as a service manager wants it."""

from __future__ import annotations

import os
from typing import NoReturn

import click

from squall.cli.checks import seconds
from squall.cli.standing import directory_option, no_faults_option
from squall.cli.up import DEFAULT_SLOTS, DRAIN_SECS
from squall.scheduler.client.standing import cluster_path
from squall.scheduler.cluster.daemons import ports_of
from squall.scheduler.cluster.size import check_cluster, this_machine
from squall.scheduler.cluster.starting import take_directory
from squall.scheduler.common.mark import daemon_environment
from squall.scheduler.common.node_name import check_node_name
from squall.scheduler.common.process_title import MODULES, Kind
from squall.scheduler.common.restart_policy import RestartPolicyOptions
from squall.scheduler.forking.interpreter import interpreter


@click.command("nimbus")
@directory_option
@no_faults_option
def nimbus_command(directory: str | None, no_faults: bool) -> None:
    """Run Nimbus until Ctrl-C. Supervisors and workers run on without it, and the next one takes up what is on disk."""
    _become(Kind.NIMBUS, directory, "--alone", *(["--no-faults"] if no_faults else []))


@click.command("supervisor")
@click.option("--node", required=True, help="Name of the node.")
@click.option("--slots", type=int, default=DEFAULT_SLOTS, show_default=True, help="Worker slots.")
@click.option("--max-deaths", type=click.IntRange(0), default=RestartPolicyOptions.max_deaths, show_default=True,
              help=f"Deaths of a worker allowed in {RestartPolicyOptions.period_secs:g} s; then its slot is FAILED.")
@click.option("-w", "--wait", "drain_secs", type=float, default=DRAIN_SECS, show_default=True, metavar="SECS",
              callback=seconds(), help="Longest drain of its workers at the end.")
@directory_option
def supervisor_command(
    node: str, slots: int, max_deaths: int, drain_secs: float, directory: str | None
) -> None:
    """Run the supervisor of one node until Ctrl-C or SIGTERM. Start it before or after Nimbus.

    At the end its topologies are drained and move to other nodes, or wait for a slot. Told twice, it ends at once.
    """
    check_cluster(1, slots, this_machine())
    check_node_name(node)
    RestartPolicyOptions(max_deaths=max_deaths)
    arguments = ("--node", node, "--ports", ports_of(slots), "--max-deaths", str(max_deaths),
                 "--drain-secs", str(drain_secs))
    _become(Kind.SUPERVISOR, directory, *arguments)


def _become(kind: Kind, directory: str | None, *arguments: str) -> NoReturn:
    run_dir = take_directory(cluster_path(directory))
    command = [*interpreter(MODULES[kind]), "--dir", str(run_dir.path), *arguments]
    os.execve(command[0], command, daemon_environment(run_dir))
