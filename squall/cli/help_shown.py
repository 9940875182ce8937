"""`-- --help` for a topology function that reads its ARGS by argparse: to print its help and exit is no mistake."""

from __future__ import annotations

from collections.abc import Collection

from squall.engine.errors import UsageError

_ASKS = {"-h", "--help"}


class HelpShown(UsageError):
    """The function was asked for its help, and has shown it."""


def is_help(error: BaseException, arguments: Collection[str]) -> bool:
    """Whether an error of a function that was called with these arguments is the end of its help."""
    return type(error) is SystemExit and error.code in (None, 0) and not _ASKS.isdisjoint(arguments)
