"""The state of a topology's bolts, read from outside while it runs or after it has stopped, and as lines of JSON::

    {"component": "count", "task": 0, "tasks": 2, "key": "storm", "value": 7}

A key or value that JSON does not have (bytes, a tuple, a float without a number) is written as {"pickle": BASE64}.

Guarantees: what is read of each task is what one commit left; what is exported and imported again is the same state, in
the same tasks.
"""

from __future__ import annotations

import base64
import json
import pickle
import re
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import message_of, repr_of
from squall.engine.state.task_store import (
    GONE,
    LOG,
    STORE_FILE,
    TaskStore,
    check_key,
    pack_value,
    read_log,
    unpack_key,
    unpack_value,
)


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
        if "no such table" in str(error):
            return [[] for _ in queries]  # its task is making it
        raise ClusterError(f"{path} cannot be read: {message_of(error)}") from error


def _packed(path: Path) -> Iterator[tuple[Any, Any]]:
    """The keys of one task, and their values as they are stored."""
    table, log = _read(path, "SELECT key, value FROM state", LOG)
    packed = {unpack_key(key): value for key, value in table}
    for _, changes in read_log(log, path):
        packed.update(changes)
    for key, value in packed.items():
        if value is not GONE:
            yield key, value


def items_of(path: Path) -> Iterator[tuple[Any, Any]]:
    """The keys and values of one task. ClusterError if one cannot be read."""
    return ((key, unpack_value(key, value, str(path))) for key, value in _packed(path))


def count_of(path: Path) -> int:
    """The number of keys of one task."""
    return sum(1 for _ in _packed(path))


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


# ---- as lines of JSON ----

_PLAIN = (str, int, bool, type(None))
_PICKLE = "pickle"


def _as_json(value: Any) -> Any:
    if type(value) in _PLAIN or (type(value) is float and value == value and abs(value) != float("inf")):
        return value
    if type(value) is list and all(type(one) in _PLAIN for one in value):
        return value
    return _as_pickle(pickle.dumps(value, 5))


def _as_pickle(packed: bytes) -> dict[str, str]:
    return {_PICKLE: base64.b64encode(packed).decode()}


def _of_json(value: Any) -> Any:
    if isinstance(value, dict):
        return pickle.loads(base64.b64decode(value[_PICKLE]))
    return value


def rows_of(root: Path, component: str | None) -> Iterator[dict[str, Any]]:
    """A row for each key of the state below the directory of a topology, or of one component."""
    for name, paths in components_with_state(root).items():
        if component in (None, name):
            for path in paths:
                task = int(path.parent.name.rpartition("-")[2])
                for key, value in _packed(path):
                    try:
                        shown = _as_json(unpack_value(key, value, str(path)))
                    except ClusterError:  # of a class that only the topology can import
                        shown = _as_pickle(value)
                    yield {
                        "component": name, "task": task, "tasks": len(paths), "key": _as_json(key), "value": shown,
                    }


def import_rows(root: Path, lines: Iterable[str]) -> int:
    """Put exported rows into the state below the directory of a topology that does not run; return their number.
    Keys that are there already get the new values. UsageError for a line that is none of an export, before anything is
    changed."""
    found: dict[tuple[str, int, int], dict[Any, Any]] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            place = str(row["component"]), int(row["task"]), int(row["tasks"])
            key, value = _of_json(row["key"]), row["value"]
            check_key(key, f"line {number}")
            packed = base64.b64decode(value[_PICKLE]) if isinstance(value, dict) else pack_value(key, value)
            found.setdefault(place, {})[key] = packed
        except Exception as error:
            raise UsageError(
                f"line {number} is no row of an exported state: {message_of(error)}; allowed: what squall state "
                "--export has written"
            ) from error
    for (component, task, tasks), items in found.items():
        directory = root / f"{component}-{task}"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        store = TaskStore(str(directory), f"{component}[{task}]")
        commits = [number for number, _ in store.log()]
        try:
            store.begin()
            store.append(max(commits, default=-1) + 1, items)
            store.put_meta("tasks", tasks)
            store.end()
        finally:
            store.close()
    return sum(map(len, found.values()))
