"""`squall list`: the topologies of a standing cluster."""

from __future__ import annotations

from typing import Any

import click

from squall.cli.screen import Block, state_cell
from squall.cli.standing import directory_option, json_option, nimbus_of, show, status_of, tell_refused, tell_unknown
from squall.cli.status_text import replaced_text
from squall.cli.tables import Grid
from squall.engine.errors import UsageError
from squall.engine.foreign.plain_text import plain
from squall.engine.report.schema import with_schema
from squall.scheduler.client.standing import uptime_secs


@click.command("list")
@directory_option
@json_option
def list_command(directory: str | None, as_json: bool) -> None:
    """List the topologies of the cluster. Exit code 1 if the store knows none although there are remains of some, or
    if no supervisor has Nimbus's key."""
    rows: list[dict[str, Any]] = []
    with nimbus_of(directory) as (run_dir, client):
        cluster = client.get_cluster()
        for record in cluster.topologies:
            try:
                assignment = client.get_topology(record.name).assignment
            except UsageError:
                # It was removed between the two requests.
                continue
            rows.append({
                "name": record.name, "id": record.id, "status": status_of(client, record, run_dir),
                "replaced_by": None if record.successor is None else record.successor.topology.id,
                "tasks": sum(component.tasks for component in record.components),
                "executors": 0 if assignment is None else sum(map(len, assignment.executors)),
                "workers": 0 if assignment is None else len(assignment.workers),
                "workers_wanted": record.conf["workers"], "uptime_secs": round(uptime_secs(record), 1),
            })
    tell_unknown(cluster.unknown)
    shown = [
        [row["name"], state_cell(row["status"]), row["tasks"], row["executors"],
         f"{row['workers']}/{row['workers_wanted']}", round(row["uptime_secs"])]
        for row in rows
    ]
    head = ["topology", "status", "tasks", "executors", "workers", "uptime s"]
    replaced = [plain(replaced_text(row["name"], row["replaced_by"])) for row in rows if row["replaced_by"]]
    blocks: list[Block] = [Grid(head, shown), *replaced] if rows else ["no topologies"]
    show(as_json, with_schema("list", {"topologies": rows}), blocks)
    refused = tell_refused(run_dir, cluster)
    if refused or (cluster.unknown and not rows):
        # The store was lost: a script that asks whether anything runs must not read that nothing does.
        raise click.exceptions.Exit(1)
