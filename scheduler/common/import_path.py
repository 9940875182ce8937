"""Puts users' modules on the import path: behind the standard library, before installed packages.

Guarantees: a user's file with the name of a standard module (`queue.py`) does not replace that module; one with the
name of an installed package does. Launcher and workers agree.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path


def extend_import_path(entries: Iterable[str]) -> None:
    """Add the entries that are missing, in their order. Thread: main."""
    new = [entry for entry in dict.fromkeys(entries) if entry not in sys.path]
    if new:
        roots = _standard_folders()
        places = (place for place, entry in enumerate(sys.path, 1) if _is_standard(entry, roots))
        at = max(places, default=len(sys.path))
        sys.path[at:at] = new


def _standard_folders() -> set[str]:
    """The folders of the standard library. `sysconfig` knows them, too, but reads the interpreter's whole build
    configuration first: 2 ms, in each worker that starts."""
    folder = os.path.dirname(os.__file__)
    return {folder, os.path.join(sys.base_exec_prefix, sys.platlibdir, os.path.basename(folder))}


def _is_standard(entry: str, roots: set[str]) -> bool:
    """Whether it is a folder (or archive) of the standard library; installed packages have a folder below it."""
    path = Path(entry)
    return entry in roots or path.name == "lib-dynload" or (path.suffix == ".zip" and str(path.parent) in {
        str(Path(root).parent) for root in roots
    })
