"""`squall ps`: the processes of a standing cluster, by role."""

from __future__ import annotations

import click

from squall.cli.shown.screen import Block, Grid, plain_number, show
from squall.cli.standing import directory_option, json_option
from squall.engine.errors import UsageError
from squall.engine.report.document import to_document, with_schema
from squall.scheduler.client.described import describe_processes
from squall.scheduler.client.standing import open_cluster, start_hint
from squall.scheduler.client.statuses import OTHER, ProcessList, ProcessShown
from squall.scheduler.common.role import processes_of


@click.command("ps")
@directory_option
@json_option
def ps_command(directory: str | None, as_json: bool) -> None:
    """List every process of the cluster: role, node, port, topology, pid. Needs no Nimbus."""
    run_dir = open_cluster(directory)
    rows = describe_processes(processes_of(run_dir))
    if not rows:
        raise UsageError(f"no process of a cluster runs in {run_dir.path}: {start_hint(directory)}")
    show(as_json, with_schema("ps", to_document(ProcessList(str(run_dir.path), rows))), [_grid(rows)])


def _grid(rows: list[ProcessShown]) -> Block:
    head = ["role", "node", "port", "topology", "pid", "uptime s", "MiB"]
    return Grid(head, [
        [
            row.role if row.role != OTHER else f"{OTHER}: {row.command}", row.node, plain_number(row.port),
            row.topology, plain_number(row.pid), round(row.uptime_secs), row.rss_bytes >> 20,
        ]
        for row in rows
    ])
