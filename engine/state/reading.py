"""The state of a topology's bolts, read from outside while it runs or after it has stopped.

Guarantees: what is read of each task is what one commit left.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import message_of, repr_of
from squall.engine.state.task_store import GONE, LOG, STORE_FILE, read_log, unpack_key, unpack_value


def components_with_state(root: Path) -> dict[str, list[Path]]:
    """The components that have state below the directory of a topology, and the stores of their tasks."""
    found: dict[str, list[Path]] = {}
    for path in sorted(root.glob(f"*-*/{STORE_FILE}"), key=lambda path: (len(path.parent.name), path)):
        match = re.fullmatch(r"(.+)-\d+", path.parent.name)
        if match is not None and _is_of_bolt(path):
            found.setdefault(match[1], []).append(path)
    return found


def _is_of_bolt(path: Path) -> bool:
    return bool(_read(path, "SELECT 1 FROM meta WHERE name = 'tasks'")[0])


def _read(path: Path, *queries: str) -> list[list[Any]]:
    try:
        store = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=30)
        try:
            store.execute("BEGIN")
            return [store.execute(query).fetchall() for query in queries]
        finally:
            store.close()
    except sqlite3.Error as error:
        raise ClusterError(f"{path} cannot be read: {message_of(error)}") from error


def items_of(path: Path) -> Iterator[tuple[Any, Any]]:
    """The keys and values of one task. ClusterError if one cannot be read."""
    table, log = _read(path, "SELECT key, value FROM state", LOG)
    packed = {unpack_key(key): value for key, value in table}
    for _, changes in read_log(log):
        packed.update(changes)
    for key, value in packed.items():
        if value is not GONE:
            yield key, unpack_value(key, value, str(path))


def read_component(root: Path, component: str) -> dict[Any, Any]:
    """The keys and values of a component. UsageError if it has no state, or several tasks have the same key."""
    known = components_with_state(root)
    if component not in known:
        raise UsageError(
            f"component {component!r:.80} has no state in {root}; with state: {', '.join(sorted(known)) or 'none'}"
        )
    found: dict[Any, Any] = {}
    for path in known[component]:
        for key, value in items_of(path):
            if key in found:
                raise UsageError(
                    f"several tasks of {component!r} have the key {repr_of(key)}, because it is not what its input is "
                    "grouped by; squall state shows each"
                )
            found[key] = value
    return found
