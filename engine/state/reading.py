"""The state of a topology's bolts, read from outside while it runs or after it has stopped, and as lines of JSON::

    {"component": "count", "task": 0, "tasks": 2, "key": "storm", "value": 7}

A key or value that JSON does not give back (bytes, a tuple, an object) is written as {"pickle": BASE64}; a key of a
class of the topology's has its form (`engine.state.keys`) beside that.

Guarantees: what is read of each task is what one commit left; what is exported and imported again is the same state, in
the same tasks.
"""

from __future__ import annotations

import base64
import contextlib
import glob
import json
import math
import pickle
import re
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import message_of, plural, repr_of
from squall.engine.state.keys import Spelling, check_key, pack_key
from squall.engine.state.records.record_store import RECORDS_FILE, SHARED
from squall.engine.state.records.settled import NAMES
from squall.engine.state.task_store import (
    GONE,
    LOG,
    STORE_FILE,
    TaskStore,
    pack_value,
    read_key,
    read_log,
    unpack_row,
    unpack_value,
)


def components_with_state(root: Path) -> dict[str, list[Path]]:
    """The components that have state below the directory of a topology, and the stores of their tasks."""
    found: dict[str, list[Path]] = {}
    for path in sorted(root.glob(f"*-*/{STORE_FILE}"), key=lambda path: (len(path.parent.name), path)):
        match = re.fullmatch(r"(.+)-\d+", path.parent.name)
        if match is not None and tasks_of(path):
            found.setdefault(match[1], []).append(path)
    return found


def stores_of(root: Path, component: str) -> list[Path]:
    """The stores of the tasks of one component, in their order."""
    found = [directory / STORE_FILE for directory in directories_of(root, component)]
    return sorted((path for path in found if path.exists()), key=task_of)


def directories_of(root: Path, component: str) -> list[Path]:
    """The directories of the tasks of one component."""
    found = root.glob(f"{glob.escape(component)}-*")
    return [path for path in found if path.name.removeprefix(f"{component}-").isdecimal()]


def meta_of(path: Path, name: str) -> Any:
    """A value of a store that is not the user's; None if it is not there."""
    found = _read(path, f"SELECT value FROM meta WHERE name = '{name}'")[0] if path.exists() else []
    return found[0][0] if found else None


def tasks_of(path: Path) -> int | None:
    """The number of tasks among which the state of a bolt is spread; None if it has none."""
    made_by = meta_of(path, "tasks")
    return None if made_by is None else int(made_by)


def names_of(path: Path) -> list[Any]:
    """The keys of one task; the spelling of one whose class only the topology can import."""
    return [key for key, _ in _packed(path)]


def task_of(path: Path) -> int:
    """The index of the task whose store this is."""
    return int(path.parent.name.rpartition("-")[2])


def partition_of(root: Path, spout: str, number: int) -> tuple[str, int | None]:
    """A partition by its number among those of a spout: what its message ids begin with, "" if it has no name, and the
    index of a task that reads it, None if none does. A number below 0: ~index of a task that reads none."""
    query = "SELECT name, (SELECT min(task) FROM readers WHERE partition = number) FROM partitions WHERE number = "
    rows = _read(root / f"{spout}-{SHARED}" / RECORDS_FILE, f"{query}{number}")[0]
    name, index = rows[0] if rows else ("()", ~number if number < 0 else None)
    return name.partition("(")[2][:-1].rstrip(",").replace(repr(*NAMES), ""), index


def _read(path: Path, *queries: str) -> list[list[Any]]:
    try:
        # Not read-only: after a power loss SQLite first takes back what was not committed.
        store = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=30)
        try:
            store.execute("BEGIN")
            return [store.execute(query).fetchall() for query in queries]
        finally:
            store.close()
    except sqlite3.Error as error:
        if "no such table" in str(error) or not path.exists():
            return [[] for _ in queries]  # its task is making it, or it has been dealt to others
        raise ClusterError(f"{path} cannot be read: {message_of(error)}") from error


def _packed(path: Path) -> Iterator[tuple[Any, Any]]:
    """The keys of one task, and their values as they are stored."""
    table, log = _read(path, "SELECT key, value FROM state", LOG)
    changes = (item for _, changes in read_log(log, path) for item in changes.items())
    # By form: 7 and a member of an IntEnum that only the topology can import are one key.
    packed = {pack_key(key): (key, value) for key, value in chain((unpack_row(*row) for row in table), changes)}
    return ((_known(key, path), value) for key, value in packed.values() if value is not GONE)


def _known(key: Any, where: object) -> Any:
    """A key, or its spelling if only the topology can import its class."""
    try:
        return read_key(key, where)
    except ClusterError as error:
        if isinstance(error.__cause__, ImportError | AttributeError):
            return key
        raise


def items_of(path: Path) -> Iterator[tuple[Any, Any]]:
    """The keys and values of one task. ClusterError if one cannot be read."""
    return ((read_key(key, path), unpack_value(key, value, str(path))) for key, value in _packed(path))


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

_PLAIN = (str, bool, type(None))
_MOST_BITS = 2_000
"""Longest whole number: Python reads those of 640 digits, whatever it is told, and by default none of 4,301."""
_PICKLE = "pickle"
_FORM = "form"
"""Of a key whose class only the topology can import: under another form it would be there twice after an import."""


def _as_json(value: Any) -> Any:
    if type(value) is Spelling:
        return {**_as_pickle(value.pickled), _FORM: _as_json(value.form)}
    return value if _is_json(value) else _as_pickle(pickle.dumps(value, 5))


def _is_json(value: Any) -> bool:
    """Return True if JSON gives back the same."""
    kind = type(value)
    if kind is dict:
        return _PICKLE not in value and all(type(key) is str and _is_json(one) for key, one in value.items())
    if kind is int:
        return bool(value.bit_length() <= _MOST_BITS)
    return (kind is list and all(map(_is_json, value))) or kind in _PLAIN or (kind is float and math.isfinite(value))


def _as_pickle(packed: bytes) -> dict[str, str]:
    return {_PICKLE: base64.b64encode(packed).decode()}


def _of_base64(value: dict[str, str]) -> bytes:
    return base64.b64decode(value[_PICKLE], validate=True)


def _form_of(key: dict[str, Any]) -> Any:
    form = key.get(_FORM)
    return pickle.loads(_of_base64(form)) if isinstance(form, dict) else form


def rows_of(root: Path, component: str | None) -> Iterator[dict[str, Any]]:
    """A row for each key of the state below the directory of a topology, or of one component."""
    for name, paths in components_with_state(root).items():
        if component in (None, name):
            for path in paths:
                task, tasks = task_of(path), tasks_of(path)
                for key, value in _packed(path):
                    try:
                        shown = _as_json(unpack_value(key, value, str(path)))
                    except ClusterError:  # of a class that only the topology can import
                        shown = _as_pickle(value)
                    yield {"component": name, "task": task, "tasks": tasks, "key": _as_json(key), "value": shown}


def import_rows(root: Path, lines: Iterable[bytes]) -> int:
    """Put exported rows into the state below the directory of a topology that does not run; return their number.
    Keys that are there already get the new values. UsageError for a line that is none of an export, before anything is
    changed."""
    found: dict[tuple[str, int, int], dict[Any, Any]] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            place = component, task, tasks = str(row["component"]), int(row["task"]), int(row["tasks"])
            if "/" in component or not 0 <= task < tasks:
                raise UsageError(f"there is no task {task} of {tasks} of {component!r:.80}")
            key, value = row["key"], row["value"]
            if isinstance(key, dict):
                key = _known(Spelling(_form_of(key), _of_base64(key)), "its key")
            if type(key) is not Spelling:
                check_key(key, f"line {number}")
            elif key.form is None:
                raise UsageError("its key is of a class that cannot be imported here, and has no form; export it anew")
            is_packed = isinstance(value, dict) and _PICKLE in value
            packed = _of_base64(value) if is_packed else pack_value(key, value)
            found.setdefault(place, {})[key] = packed
        except Exception as error:
            raise UsageError(
                f"line {number} is no row as squall state --export writes it: {message_of(error)}"
            ) from error
    for component, task, tasks in found:
        path = root / f"{component}-{task}" / STORE_FILE
        if (made_by := tasks_of(path)) not in (None, tasks):
            raise ClusterError(
                f"the state of {component} in {path} was made by {plural(made_by or 0, 'task')}, and {component} has "
                f"{tasks} now, to which other keys belong; allowed: tasks={made_by}, or to begin anew (--fresh)"
            )
    for (component, task, tasks), items in found.items():
        directory = root / f"{component}-{task}"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        store = TaskStore(str(directory), f"{component}[{task}]")
        with contextlib.closing(store), store.changing():
            [(last,)] = store.read("SELECT max(number) FROM log")
            store.append(0 if last is None else last + 1, items)
            store.put_meta("tasks", tasks)
    return sum(map(len, found.values()))
