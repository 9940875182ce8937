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
