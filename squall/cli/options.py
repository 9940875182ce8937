"""Types of option values, and options that several commands have."""

from __future__ import annotations

from typing import Any

import click

from squall.scheduler.common.duration import MAX_SECS


class Seconds(click.types.FloatParamType):
    """A number of seconds from `least`, or above it, to `most`."""

    def __init__(self, least: float = 0.0, most: float = MAX_SECS, *, above: bool = False) -> None:
        self._least, self._most, self._above = least, most, above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        secs: float = super().convert(value, param, ctx)
        if not self._least <= secs <= self._most or (self._above and secs == self._least):
            numbers = f"above {self._least:g} and at most" if self._above else f"from {self._least:g} to"
            self.fail(f"{value} is not a number of seconds {numbers} {self._most:.10g}", param, ctx)
        return secs


class SomePath(click.Path):
    """A path; an empty one would mean the current directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("'' is no path of a file or directory", param, ctx)
        return super().convert(value, param, ctx)


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
wait_option = click.option(
    "-w", "--wait", "wait_secs", type=Seconds(), metavar="SECS",
    help="Longest wait for pending messages (default: the message timeout).",
)
