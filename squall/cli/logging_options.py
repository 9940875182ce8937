"""`--log-level` and `--log-format`: the settings of these names, as options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

C = TypeVar("C", bound=Callable[..., Any])


def logging_options(command: C) -> C:
    level = click.option("--log-level", metavar="LEVEL", help="Level of the root logger (setting log_level).")
    form = click.option("--log-format", metavar="FORMAT", help="text or json, a line for each (setting log_format).")
    return level(form(command))
