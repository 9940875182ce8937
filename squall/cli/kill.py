"""`squall kill`: drain and remove a topology."""

from __future__ import annotations

import time

import click

from squall.cli.interrupts import Interrupts
from squall.cli.output import note
from squall.cli.standing import (
    directory_option,
    job_of,
    json_option,
    left_document,
    left_pending,
    limit_secs,
    nimbus_of,
    show,
    wait_option,
)
from squall.engine.errors import UsageError
from squall.engine.foreign.plain_text import plain
from squall.scheduler.client.job import Gone


@click.command("kill")
@click.argument("name", required=False)
@click.option("--unknown", is_flag=True,
              help="Stop the workers and remove the files of topologies that the store does not know.")
@wait_option
@directory_option
@json_option
def kill_command(
    name: str | None, unknown: bool, wait_secs: float | None, directory: str | None, as_json: bool
) -> None:
    """Stop a topology's spouts, wait until nothing is pending, then remove it. Ctrl-C ends the wait. A topology that
    was to replace it is dropped.

    With --unknown instead of NAME: topologies that squall list calls unknown. They are not drained; their dead letters
    and their tasks' state stay.
    """
    if unknown == (name is not None):
        raise UsageError("give either the NAME of a topology or --unknown")
    if name is None:
        with nimbus_of(directory) as (_, client):
            ids = client.forget_unknown()
        text = f"removed: {', '.join(ids)}" if ids else "nothing is unknown"
        show(as_json, {"unknown": ids}, text)
        return
    with Interrupts() as interrupts, job_of(directory, name) as job:
        limit, began = limit_secs(wait_secs, job.record), time.monotonic()
        try:
            pending = job.kill(limit, lambda: interrupts.count > 0)
        except Gone:
            # What it left, the command that removed it has told.
            gone = {"name": name, "id": job.id, "pending": None, "waiting": None, "untracked_unexecuted": None}
            show(as_json, gone, f"{name} is gone: another command has removed it, or it has left by itself")
            return
    if job.record.successor is not None:
        note(f"{plain(job.record.successor.topology.id)}, which was to take its place, is dropped")
    document = {"name": name, "id": job.id, **left_document(pending)}
    show(as_json, document, f"{name} is gone; {left_pending(pending, limit, time.monotonic() - began)}")
    if interrupts.count:
        raise click.exceptions.Exit(interrupts.exit_code)
