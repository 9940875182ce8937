"""The command line, one file for each group of commands.

The group itself is imported on first use: Ctrl-C during its import, which is most of the time that a short command
takes, ends the command as it does later.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script."""
    try:
        from squall.cli import commands

        commands.main(arguments)
    except KeyboardInterrupt:
        # As later: the terminal has shown ^C on this line.
        sys.stderr.write("\ninterrupted\n")
        sys.exit(130)
