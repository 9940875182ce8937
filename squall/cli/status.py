"""`squall status`: one topology in every detail, or the whole cluster."""

from __future__ import annotations

import sys
import time

import click

from squall.cli.given.checks import Seconds
from squall.cli.shown.live import DeathNews, Look, watch
from squall.cli.shown.output import note
from squall.cli.shown.screen import LINE_INTERVAL_SECS, SCREEN_INTERVAL_SECS, interval_or_default, show
from squall.cli.shown.status_text import cluster_text, topology_line, topology_text
from squall.cli.standing import (
    directory_option,
    job_of,
    json_option,
    nimbus_of,
    tell_unknown,
)
from squall.engine.errors import UsageError
from squall.engine.report.document import with_schema
from squall.ipc.rundir import RunDir
from squall.scheduler.client.described import describe, describe_cluster
from squall.scheduler.client.job import Gone, Job
from squall.scheduler.client.standing import open_cluster

_RATES_SECS, _FIRST_SECS = 0.5, 0.2
"""Time over which rates are measured, and the first ones of --watch: its screen should not stay empty."""


@click.command("status")
@click.argument("name", required=False)
@click.option("--watch", "watching", is_flag=True, help="Show the topology again and again, and deaths as they happen.")
@click.option("--interval", "interval_secs", type=Seconds(0.05, 3600), metavar="SECS",
              help=f"Time over which rates are measured (default: {_RATES_SECS:g}), and between two looks of --watch "
                   f"({SCREEN_INTERVAL_SECS:g}; {LINE_INTERVAL_SECS:g}, and one line each, if stdout is no terminal).")
@directory_option
@json_option
def status_command(
    name: str | None, watching: bool, interval_secs: float | None, directory: str | None, as_json: bool
) -> None:
    """Show a topology: components, executors, workers, deaths, rates. Without NAME: the cluster."""
    if watching and as_json:
        raise UsageError("--watch has no end and --json is one document: choose one")
    if watching and name is None:
        raise UsageError("--watch shows one topology; give its NAME")
    looks_secs = interval_or_default(interval_secs, sys.stdout)
    if name is None:
        with nimbus_of(directory) as (run_dir, client):
            cluster = client.get_cluster()
            document = describe_cluster(run_dir, client, cluster)
        tell_unknown(cluster.unknown)
        show(as_json, with_schema("cluster", document), cluster_text(document))
        return
    with job_of(directory, name) as job:
        run_dir = open_cluster(directory)
        if watching:
            _watch_topology(run_dir, job, looks_secs)
            return
        before = job.stats()
        time.sleep(_RATES_SECS if interval_secs is None else interval_secs)
        document = describe(run_dir, job, before)
    show(as_json, with_schema("status", document), topology_text(document))
    note(*[f"{name} has stopped: {document['why_stopped']}"] if document["why_stopped"] else [])


def _watch_topology(run_dir: RunDir, job: Job, interval_secs: float) -> None:
    """Show a topology again and again, until it is gone."""
    before, told = job.stats(), DeathNews(job.topology_state().restarts)
    # The first look has rates, too.
    time.sleep(min(_FIRST_SECS, interval_secs))

    def look() -> Look | str:
        nonlocal before
        try:
            document = describe(run_dir, job, before)
            before = job.stats()
            return Look(topology_text(document), topology_line(document), told.lines(job.topology_state().restarts))
        except Gone as gone:
            return str(gone)

    watch(look, interval_secs)
