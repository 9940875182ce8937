"""Puts users' modules on the import path: behind the standard library, before installed packages.

Guarantees: a user's file with the name of a standard module (`queue.py`) does not replace that module; one with the
name of an installed package does. Launcher and workers agree.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path


def extend_import_path(entries: Iterable[str]) -> None:
    """Add the entries that are missing, in their order. Thread: main."""
    new = [entry for entry in dict.fromkeys(entries) if entry not in sys.path]
    at = max((index for index, entry in enumerate(sys.path, 1) if _is_standard(entry)), default=len(sys.path))
    sys.path[at:at] = new


def _is_standard(entry: str) -> bool:
    """Whether it is a folder (or archive) of the standard library; installed packages have a folder below it."""
    roots = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    path = Path(entry)
    return entry in roots or path.name == "lib-dynload" or (path.suffix == ".zip" and str(path.parent) in {
        str(Path(root).parent) for root in roots
    })
