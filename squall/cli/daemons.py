"""`squall nimbus` and `squall supervisor`: one daemon, in the foreground, as a service manager wants it."""

from __future__ import annotations

import os
from typing import NoReturn

import click

from squall.cli.standing import directory_option, no_faults_option
from squall.cli.up import DEFAULT_SLOTS
from squall.scheduler.client.standing import cluster_path
from squall.scheduler.cluster.daemons import daemon_command, daemon_environment, ports_of, take_directory
from squall.scheduler.cluster.size import check_cluster, this_machine
from squall.scheduler.common.node_name import check_node_name
from squall.scheduler.common.restart_policy import RestartPolicyOptions


@click.command("nimbus")
@directory_option
@no_faults_option
def nimbus_command(directory: str | None, no_faults: bool) -> None:
    """Run Nimbus until Ctrl-C. Supervisors and workers run on without it, and the next one takes up what is on disk."""
    _become("squall.scheduler.nimbus.main", directory, "--alone", *(["--no-faults"] if no_faults else []))


@click.command("supervisor")
@click.option("--node", required=True, help="Name of the node.")
@click.option("--slots", type=int, default=DEFAULT_SLOTS, show_default=True, help="Worker slots.")
@click.option("--max-deaths", type=click.IntRange(0), default=RestartPolicyOptions.max_deaths, show_default=True,
              help=f"Deaths of a worker allowed in {RestartPolicyOptions.period_secs:g} s; then its slot is FAILED.")
@directory_option
def supervisor_command(node: str, slots: int, max_deaths: int, directory: str | None) -> None:
    """Run the supervisor of one node until Ctrl-C, which stops its workers too. Start it before or after Nimbus."""
    check_cluster(1, slots, this_machine())
    check_node_name(node)
    RestartPolicyOptions(max_deaths=max_deaths)
    arguments = ("--node", node, "--ports", ports_of(slots), "--max-deaths", str(max_deaths), "--interruptible")
    _become("squall.scheduler.supervisor.main", directory, *arguments)


def _become(module: str, directory: str | None, *arguments: str) -> NoReturn:
    run_dir = take_directory(cluster_path(directory))
    command = daemon_command(module, run_dir, *arguments)
    os.execve(command[0], command, daemon_environment(run_dir))
