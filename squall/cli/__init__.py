"""The command line, one file for each group of commands.

The group itself is imported on first use: Ctrl-C during its import, which is most of the time that a short command
takes, ends the command as it does later.
"""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script."""
    if arguments is None and sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        # Names of files go between processes as UTF-8: in Latin 1, a cluster in the folder Größe found no socket of its
        # own. As Python 3.15 does by itself, begin anew with UTF-8, whatever the locale; so do all that it starts.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONUTF8": "1"})
    try:
        from squall.cli import commands

        commands.main(arguments)
    except KeyboardInterrupt:
        # As later: the terminal has shown ^C on this line.
        sys.stderr.write("\ninterrupted\n")
        sys.exit(130)
