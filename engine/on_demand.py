"""Imports names of a package on first use (PEP 562), for parts that not every user needs.

It imports next to nothing itself, not even `typing`: until the `squall` command is reached, Ctrl-C shows a traceback.
"""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def homes_in(file: str) -> dict[str, str]:
    """Return the names that a package imports for type checkers alone, each with its module: a line
    `from MODULE import NAME as NAME` for each. They are read from its source, so that they stand there once."""
    with open(file, encoding="utf-8") as source:
        lines = map(str.split, source)
        return {words[5]: words[1] for words in lines if len(words) == 6 and words[4] == "as"}


def on_demand(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Make a package's `__getattr__`; `homes` names the module of each name."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(homes[name]), name)
        # From now on it is found without this function.
        setattr(sys.modules[package], name, found)
        return found

    return load
