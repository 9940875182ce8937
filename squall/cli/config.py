"""`squall config`: every setting with its default, Storm's key and meaning."""

from __future__ import annotations

import json

import click

from engine.config import Config
from squall.cli.settings import parse_settings


@click.command("config")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting, by its name or Storm's key.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def config_command(settings: tuple[str, ...], as_json: bool) -> None:
    """Show the resolved settings."""
    config = Config(**parse_settings(settings))
    if as_json:
        rows = {name: {"value": value, "storm_key": key, "help": text} for name, key, value, text in config}
        click.echo(json.dumps({**rows, **{key: {"value": value} for key, value in config.extra.items()}}, indent=2))
        return
    for name, key, value, text in config:
        click.echo(f"{name} = {value!r}\n    {key}: {text}")
    for key, value in config.extra.items():
        click.echo(f"{key} = {value!r}\n    handed to the components")
