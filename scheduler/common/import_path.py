"""Where users' modules are found: behind the standard library, before what is installed.

Guarantees: a user's file that is called like a module of the standard library (`queue.py`) is not executed by code that
wants that one; one that is called like an installed package comes before it. Launcher and workers agree.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path


def extend_import_path(entries: Iterable[str]) -> None:
    """Add the entries that are not there yet, in their order. Main thread."""
    new = [entry for entry in dict.fromkeys(entries) if entry not in sys.path]
    at = max((index for index, entry in enumerate(sys.path, 1) if _is_standard(entry)), default=len(sys.path))
    sys.path[at:at] = new


def _is_standard(entry: str) -> bool:
    """Whether it is a folder (or archive) of the standard library; what is installed lies in a folder below it."""
    roots = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    path = Path(entry)
    return entry in roots or path.name == "lib-dynload" or (path.suffix == ".zip" and str(path.parent) in {
        str(Path(root).parent) for root in roots
    })
