"""`squall kill`: drain and remove a topology."""

from __future__ import annotations

import click

from squall.cli.interrupts import Interrupts
from squall.cli.standing import directory_option, job_of, json_option, left_pending, limit_secs, show, wait_option


@click.command("kill")
@click.argument("name")
@wait_option
@directory_option
@json_option
def kill_command(name: str, wait_secs: float | None, directory: str | None, as_json: bool) -> None:
    """Stop a topology's spouts, wait until nothing is pending, then remove it. Ctrl-C ends the wait."""
    with Interrupts() as interrupts, job_of(directory, name) as job:
        limit = limit_secs(wait_secs, job.record)
        pending = job.kill(limit, lambda: interrupts.count > 0)
    show(as_json, {"name": name, "id": job.id, "pending": pending}, f"{name} is gone; {left_pending(pending, limit)}")
    if interrupts.count:
        raise click.exceptions.Exit(interrupts.exit_code)
