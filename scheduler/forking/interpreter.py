"""How Squall's own modules are executed."""

from __future__ import annotations

import sys


def interpreter(module: str) -> list[str]:
    """The beginning of a command line that runs a module of Squall's.

    -P keeps the current directory off the import path: a user's file that is called `queue.py` must not be executed
    by a daemon that wants the standard library's.
    """
    return [sys.executable, "-P", "-m", module]
