"""`squall config`: every setting with its default, Storm's key and meaning."""

from __future__ import annotations

import click

from squall.cli.output import say, say_json
from squall.cli.settings import parse_settings
from squall.engine.api.config import Config
from squall.engine.foreign.plain_text import plain


@click.command("config")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting, by its name or Storm's key.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def config_command(settings: tuple[str, ...], as_json: bool) -> None:
    """Show the resolved settings."""
    config = Config(**parse_settings(settings))
    if as_json:
        rows = {name: {"value": value, "storm_key": key, "help": text} for name, key, value, text in config}
        say_json({**rows, **{key: {"value": value} for key, value in config.extra.items()}})
        return
    for name, key, value, text in config:
        say(f"{name} = {value!r}\n    {key}: {text}")
    for key, value in config.extra.items():
        say(f"{plain(key)} = {value!r}\n    handed to the components")
