"""`squall reset`: try again what was given up."""

from __future__ import annotations

import click

from squall.cli.standing import directory_option, json_option, nimbus_of, show


@click.command("reset")
@click.argument("name")
@directory_option
@json_option
def reset_command(name: str, directory: str | None, as_json: bool) -> None:
    """Start the FAILED slots of a topology anew; slots that gave it up may run it again.

    Workers that run are not touched; their earlier deaths no longer count against them.
    """
    with nimbus_of(directory) as (_, client):
        given_up = [str(slot) for slot in client.get_topology(name).topology.given_up]
        client.reset(name)
    tried = f"{', '.join(given_up)} may be used again" if given_up else "no slot had given it up"
    show(as_json, {"name": name, "slots": given_up}, f"{name} is reset: {tried}")
