"""`squall repair`: what can be done about a store that Nimbus refuses."""

from __future__ import annotations

import click

from squall.cli.standing import directory_option, json_option, show
from squall.engine.errors import UsageError
from squall.scheduler.client.standing import open_cluster
from squall.scheduler.nimbus import store_repair


@click.command("repair")
@click.option("--believe", is_flag=True, help="Go on with what can be read, whatever its seal says.")
@click.option("--empty", is_flag=True, help="Go on with an empty store; the old one is moved aside.")
@directory_option
@json_option
def repair_command(believe: bool, empty: bool, directory: str | None, as_json: bool) -> None:
    """Examine the store of a cluster whose Nimbus does not run, and say what is wrong; exit code 1 if something is.

    Nothing is ever deleted. Workers and files of topologies that the store does not know are left alone by Nimbus:
    squall list names them, squall kill --unknown ends and removes them.
    """
    if believe and empty:
        raise UsageError("--believe and --empty exclude each other")
    run_dir = open_cluster(directory)
    if empty:
        aside = store_repair.begin_empty(run_dir)
        text = f"the store is empty; the files of the old one are in {aside}"
        show(as_json, {"dir": str(run_dir.path), "topologies": [], "set_aside": str(aside)}, text)
        return
    if believe:
        names, aside = store_repair.believe(run_dir)
        text = f"the store is believed; a copy of its files is in {aside}; topologies: {', '.join(names) or 'none'}"
        show(as_json, {"dir": str(run_dir.path), "topologies": names, "set_aside": str(aside)}, text)
        return
    names = store_repair.examine(run_dir)
    text = f"the store is whole; topologies: {', '.join(names) or 'none'}"
    show(as_json, {"dir": str(run_dir.path), "topologies": names, "set_aside": None}, text)
