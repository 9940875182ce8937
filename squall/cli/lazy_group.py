"""A group of commands that are imported when they are called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True)
class Home:
    """Where a command is, and its line in the group's help."""

    place: str
    """module:name, in `squall.cli`."""
    summary: str


class LazyGroup(click.Group):
    """Shows its help without an import; each command is imported from its home on first use."""

    def __init__(self, *arguments: Any, homes: Mapping[str, Home], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._homes = homes

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self._homes, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in self._homes:
            from squall.cli.settings import name_variables  # only now: the help takes no settings

            module, _, name = self._homes[cmd_name].place.partition(":")
            command = getattr(importlib.import_module(f"squall.cli.{module}"), name)
            name_variables(command, cmd_name)
            self.add_command(command, cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            import difflib  # only now: every command would start later

            if near := difflib.get_close_matches(args[0], self.list_commands(ctx), n=1):
                ctx.fail(f"No such command {args[0]!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self._homes[name].summary) for name in self.list_commands(ctx) if name in self._homes]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
