"""`squall config`: every setting with its value, Storm's key and meaning, and where its value comes from."""

from __future__ import annotations

from typing import Any

import click

from squall.cli.loader import load_topology
from squall.cli.options import json_option, use_settings_beside
from squall.cli.output import reserve_stdout, say, say_json
from squall.cli.settings import layers_of, settings_option


@click.command("config")
@click.argument("target", metavar="[FILE[:NAME]]", required=False, is_eager=True, callback=use_settings_beside)
@settings_option
@click.option("--show-origin", is_flag=True, help="Name the place that gives each value.")
@json_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]")
def config_command(
    target: str | None, settings: tuple[str, ...], show_origin: bool, as_json: bool, arguments: tuple[str, ...]
) -> None:
    """Show the resolved settings; with FILE, those of the topology in it.

    Options win over SQUALL_* variables, these over the Config of the code, this over squall.toml or [tool.squall] in
    pyproject.toml, and that over the defaults.
    """
    layers = layers_of(settings)
    out = reserve_stdout() if as_json else None
    code = None if target is None else load_topology(target, list(arguments)).topology.config
    config = layers.config(code)
    document: dict[str, Any] = {
        **{name: {"value": value, "storm_key": key, "help": text} for name, key, value, text in config},
        **{key: {"value": value, "help": "handed to the components"} for key, value in config.extra.items()},
    }
    if show_origin:
        for name, row in document.items():
            row["origin"] = layers.origin(name, code)
    if as_json:
        say_json(document, out=out)
        return
    for name, row in document.items():
        if show_origin:
            say(f"{name} = {row['value']!r}    # {row['origin']}")
        else:
            meaning = f"{row['storm_key']}: {row['help']}" if "storm_key" in row else row["help"]
            say(f"{name} = {row['value']!r}", f"    {meaning}")
