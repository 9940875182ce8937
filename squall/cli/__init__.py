"""The command line, one file for each group of commands.

The group itself is imported on first use: the throw-away process that imports a submitted file
(`squall.cli.load_child`) does not need it, and saves a third of its time; and Ctrl-C during its import, which is most
of the time that a short command takes, ends the command as it does later.
"""

from __future__ import annotations

import sys

from squall.on_demand import TYPE_CHECKING, on_demand

if TYPE_CHECKING:
    from squall.cli.commands import STANDING

__all__ = ["STANDING", "main"]

__getattr__ = on_demand(__name__, {"STANDING": "squall.cli.commands"})


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script."""
    try:
        from squall.cli import commands

        commands.main(arguments)
    except KeyboardInterrupt:
        # As later: the terminal has shown ^C on this line.
        sys.stderr.write("\ninterrupted\n")
        sys.exit(130)
