"""`squall status`: one topology in every detail, or the whole cluster."""

from __future__ import annotations

import time

import click

from squall.cli.shown.output import note
from squall.cli.shown.screen import show
from squall.cli.shown.status_text import cluster_text, topology_text
from squall.cli.standing import (
    directory_option,
    job_of,
    json_option,
    nimbus_of,
    tell_unknown,
)
from squall.engine.report.document import with_schema
from squall.ipc.private import room_error
from squall.scheduler.client.described import describe, describe_cluster

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
