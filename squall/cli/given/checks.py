"""Checks of option values that click's types let through: no number, beyond all measure, empty.

Guarantees: the error names the option, the value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable

import click

from squall.engine.errors import UsageError
from squall.scheduler.common.duration import MAX_SECS

Check = Callable[[click.Context, click.Parameter, float | None], float | None]


def seconds(least: float = 0.0, most: float = MAX_SECS, *, above: bool = False) -> Check:
    """Callback of an option with type=float: a number of seconds from `least`, or above it, to `most`."""
    numbers = f"above {least:g} and at most {most:.10g}" if above else f"from {least:g} to {most:.10g}"

    def check(_: click.Context, option: click.Parameter, secs: float | None) -> float | None:
        if secs is not None and not (least <= secs <= most and (secs > least or not above)):
            raise UsageError(f"{_name(option)} is {secs:g}; allowed: a number of seconds {numbers}")
        return secs

    return check


def whole(least: int, most: int) -> Callable[[click.Context, click.Parameter, int | None], int | None]:
    """Callback of an option with type=int: an integer from `least` to `most`."""

    def check(_: click.Context, option: click.Parameter, number: int | None) -> int | None:
        if number is not None and not least <= number <= most:
            raise UsageError(f"{_name(option)} is {number}; allowed: an integer from {least} to {most}")
        return number

    return check


def some_path(_: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Callback of an option or argument with type=click.Path(): an empty path would mean the current directory."""
    if path == "":
        raise UsageError(f"{_name(parameter)} is ''; allowed: the path of a file or directory")
    return path


def _name(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.human_readable_name.strip("[]")
