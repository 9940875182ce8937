"""The command line, one file for each group of commands.

The group itself is imported on first use: the throw-away process that imports a submitted file
(`squall.cli.load_child`) does not need it, and saves a third of its time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.on_demand import on_demand

if TYPE_CHECKING:
    from squall.cli.commands import STANDING, main

__all__ = ["STANDING", "main"]

__getattr__ = on_demand(__name__, dict.fromkeys(__all__, "squall.cli.commands"))
