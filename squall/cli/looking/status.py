"""`squall status`: one topology in every detail, or the whole cluster; `squall ps`: its processes, by role."""

from __future__ import annotations

import time

import click

from squall.cli.cluster_access import directory_option, job_of, nimbus_of, tell_unknown
from squall.cli.looking.status_text import cluster_text, topology_text
from squall.cli.options import json_option
from squall.cli.output import note
from squall.cli.screen import Block, Grid, plain_number, show
from squall.engine.errors import UsageError
from squall.engine.report.document import to_document, with_schema
from squall.ipc.private import room_error
from squall.scheduler.client.described import describe, describe_cluster, describe_processes
from squall.scheduler.client.standing import open_cluster, start_hint
from squall.scheduler.client.statuses import OTHER, ProcessList, ProcessShown
from squall.scheduler.common.role import processes_of

_RATES_SECS = 0.5
"""Time over which rates are measured."""


@click.command("status")
@click.argument("name", required=False)
@directory_option
@json_option
def status_command(name: str | None, directory: str | None, as_json: bool) -> None:
    """Show a topology: components, executors, workers, deaths, rates. Without NAME: the cluster. `squall top` shows a
    topology live."""
    if name is None:
        with nimbus_of(directory) as (run_dir, client):
            cluster = client.get_cluster()
            document = describe_cluster(run_dir, client, cluster)
            note(*filter(None, [room_error(run_dir.durable)]))  # as below
        tell_unknown(cluster.unknown)
        show(as_json, with_schema("cluster", document), cluster_text(document))
        return
    with job_of(directory, name) as job:
        before = job.stats()
        time.sleep(_RATES_SECS)
        document = describe(job.run_dir, job, before)
        # What its processes say of a full disk goes to logs that are on it.
        note(*filter(None, [room_error(job.run_dir.durable)]))
    show(as_json, with_schema("status", document), topology_text(document))


@click.command("ps")
@directory_option
@json_option
def ps_command(directory: str | None, as_json: bool) -> None:
    """List every process of the cluster: role, node, port, topology, pid. Needs no Nimbus."""
    run_dir = open_cluster(directory)
    rows = describe_processes(processes_of(run_dir))
    if not rows:
        raise UsageError(f"no process of a cluster runs in {run_dir.path}: {start_hint(directory)}")
    show(as_json, with_schema("ps", to_document(ProcessList(str(run_dir.path), rows))), [_processes(rows)])


def _processes(rows: list[ProcessShown]) -> Block:
    head = ["role", "node", "port", "topology", "pid", "uptime s", "MiB"]
    return Grid(head, [
        [
            row.role if row.role != OTHER else f"{OTHER}: {row.command}", row.node, plain_number(row.port),
            row.topology, plain_number(row.pid), round(row.uptime_secs), row.rss_bytes >> 20,
        ]
        for row in rows
    ])
