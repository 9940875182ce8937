"""`squall activate` and `squall deactivate`: let a topology's spouts emit, or stop them."""

from __future__ import annotations

import click

from squall.cli.standing import directory_option, json_option, nimbus_of, show


@click.command("activate")
@click.argument("name")
@directory_option
@json_option
def activate_command(name: str, directory: str | None, as_json: bool) -> None:
    """Let a topology's spouts emit again."""
    with nimbus_of(directory) as (_, client):
        record = client.activate(name)
    show(as_json, {"name": name, "status": record.status}, f"{name} is {record.status}")


@click.command("deactivate")
@click.argument("name")
@directory_option
@json_option
def deactivate_command(name: str, directory: str | None, as_json: bool) -> None:
    """Stop a topology's spouts; what is under way is processed."""
    with nimbus_of(directory) as (_, client):
        record = client.deactivate(name)
    show(as_json, {"name": name, "status": record.status}, f"{name} is {record.status}")
