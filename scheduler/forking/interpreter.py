"""How Squall's own modules are executed."""

from __future__ import annotations

import sys


def interpreter(module: str) -> list[str]:
    """The beginning of a command line that runs one of Squall's modules.

    -P takes the current directory off the import path: a daemon that imports the standard library's `queue` must not
    execute a user's file of that name.
    """
    return [sys.executable, "-P", "-m", module]
