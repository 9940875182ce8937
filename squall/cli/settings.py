"""The option --set, and how settings given on the command line as KEY=VALUE are parsed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click

from squall.cli.variables import OneText
from squall.engine.errors import UsageError

_WORDS = {"none": None, "null": None, "true": True, "false": False}

settings_option = click.option(
    "--set", "settings", multiple=True, type=OneText(), metavar="KEY=VALUE",
    help="A setting, by its name or Storm's key; see squall config.",
)


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Parse to KEY -> value; one that is valid JSON (a number, true, null, a list) is read as JSON, others as text."""
    parsed: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {setting!r} is not understood; write KEY=VALUE")
        parsed[key] = parse_value(text)
    return parsed


def parse_value(text: str) -> Any:
    """Read a value as JSON if it is valid JSON, else as text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
