"""A topology as it travels to a cluster: its pickled objects, its layout, and its modules.

Guarantees
    * Modules that lie beside the topology file and were imported when it was packed travel along, packages as a whole:
      workers that start later run the submitted code, even if the files change.
    * The code of a refused submission does not stay in the code store, and that of one under way is not swept from it.

Relies on: `scheduler.common.blob` to choose what is pickled by value and what by name.
"""

from __future__ import annotations

import io
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace as with_changes
from pathlib import Path, PurePath
from types import MappingProxyType, ModuleType
from typing import Any

from msgspec.structs import replace

from squall.engine.api.config import Config
from squall.engine.api.topology import ALL, ANY_TASK, CUSTOM, ComponentSpec, Topology
from squall.engine.errors import UsageError
from squall.engine.foreign.text import plural
from squall.engine.state.records.lineage import RESULTS, has_identity
from squall.engine.state.sink_task import GatheringTask
from squall.engine.state.stateful_task import StatefulTask
from squall.engine.state.windowing.window_task import WindowTask
from squall.scheduler.client.kept_state import check_kept
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.common import blob
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.environment import environment_of, logging_set_up
from squall.scheduler.common.messages import ComponentSummary, InputSummary, SubmitTopology, TopologyRecord, Wire

_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
"""Time stamp of every file in an archive, the earliest of the format: the same modules make the same archive."""
INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Names of folders whose modules workers find by themselves."""
_DATA_BYTES = 1 << 20
"""Largest file of a package, other than a module, that travels along."""


class TopologyCode(Wire, frozen=True):
    """Everything that a cluster needs to run a topology."""

    blob: bytes
    components: list[ComponentSummary]
    sys_path: list[str]
    archive: bytes = b""
    """A zip of modules, put first on the workers' import path; empty if there are none."""


def pack(
    topology: Topology, config: Config, by_value: ModuleType | None = None, beside: Path | None = None
) -> TopologyCode:
    """Pack a topology, in the process that made it.

    `by_value`: a module that workers cannot import (see `scheduler.common.blob`).

    `beside`: the directory whose imported modules travel along; None for none.
    """
    return TopologyCode(
        blob.dump(with_changes(topology, logging=logging_set_up()), by_value),
        summaries(topology, config),
        [entry or os.getcwd() for entry in sys.path],
        b"" if beside is None else _archive(beside.resolve(), by_value),
    )


def summaries(topology: Topology, config: Config) -> list[ComponentSummary]:
    """The facts about its components, ackers included."""
    found = []
    for row in topology.layout(config.acker_count):
        spec = topology.components.get(row[0])
        inputs, outputs = ((), {}) if spec is None else (spec.subscriptions, spec.outputs)
        found.append(ComponentSummary(
            *row, [InputSummary(one.source, one.stream, one.grouping, list(one.fields)) for one in inputs],
            {name: list(stream.fields) for name, stream in outputs.items()}, *_state_of(spec),
        ))
    return found


def _state_of(spec: ComponentSpec | None) -> tuple[bool, str]:
    """Whether a component counts exactly, and what it has declared of its windows."""
    component = None if spec is None else spec.component
    has_state = isinstance(component, StatefulTask | GatheringTask)
    return has_state, component.declaration.packed if isinstance(component, WindowTask) else ""


def submit(
    client: NimbusClient, name: str, config: Config, code: TopologyCode,
    note: Callable[[str], None] = lambda text: None, **wishes: Any,
) -> TopologyRecord:
    """Hand a topology to Nimbus. `wishes`: further fields of `SubmitTopology`.

    One that is to replace another begins when that is gone (`NimbusClient.await_begun`). `note` is told of windows that
    are dropped. ClusterError if it cannot go on with the state that is there.
    """
    if not wishes.get("fresh"):
        for component, count in check_kept(client.run_dir, name, code.components, config.drop_windows).items():
            note(f"{plural(count, 'open window')} of {component}, declared otherwise, will be dropped")
    store = CodeStore(client.run_dir.code)
    with store.held():
        digest = store.put(code.blob)
        sys_path = code.sys_path
        if code.archive:
            sys_path = [str(store.path(store.put(code.archive))), *sys_path]
        return client.submit_topology(SubmitTopology(
            name, config.to_dict(), code.components, digest, sys_path, cwd=_current_directory(), **wishes
        ))


def submit_again(
    client: NimbusClient, record: TopologyRecord, tasks: Mapping[str, int], workers: int | None = None,
    executors: Mapping[str, int] = MappingProxyType({}), wait_secs: float | None = None,
) -> TopologyRecord:
    """Submit a topology that runs in its own place, with other numbers of tasks. UsageError if it cannot have them."""
    components = _with_tasks(record, tasks, executors)
    check_kept(client.run_dir, record.name, components, drops=False)
    with CodeStore(client.run_dir.code).held():
        return client.submit_topology(SubmitTopology(
            record.name, record.conf if workers is None else {**record.conf, "workers": workers}, components,
            record.blob, record.sys_path, record.status, False, record.remove_when_drained, cwd=record.cwd,
            env=environment_of(client.run_dir, record), replace=True, replace_wait_secs=wait_secs,
        ))


def _with_tasks(
    record: TopologyRecord, tasks: Mapping[str, int], executors: Mapping[str, int]
) -> list[ComponentSummary]:
    known = {each.id: each for each in record.components}
    if record.status not in ("ACTIVE", "INACTIVE") or record.successor is not None:
        raise UsageError(f"topology {record.name!r} is {record.status}, or gives way: only one that runs can change")
    for name in (*tasks, *executors):
        if name not in known or known[name].kind == "acker":
            raise UsageError(f"there is no component {name!r:.80}; components are {', '.join(sorted(known))}")
    found = []
    for each in record.components:
        name = each.id.removesuffix(RESULTS)
        number = tasks.get(name, each.tasks)
        mistake = _mistake(each, number, known) if number != each.tasks else None
        if mistake is not None:
            raise UsageError(f"component {name!r} cannot have {plural(number, 'task')}: {mistake}")
        parallelism = executors.get(name, number if each.executors == each.tasks else each.executors)
        found.append(replace(each, tasks=number, executors=min(number, parallelism)))
    return found


def _mistake(component: ComponentSummary, tasks: int, known: Mapping[str, ComponentSummary]) -> str | None:
    """Why a component cannot have so many tasks without being built anew; None if it can."""
    for read in component.inputs:
        copied = read.grouping in (ALL, CUSTOM) and has_identity(tuple(known[read.component].outputs[read.stream]))
        if copied or (component.has_state and tasks > 1 and read.grouping in ANY_TASK):
            return (
                f"it reads {read.component!r} by {read.grouping} grouping, and leads to state; submit it with --replace"
            )
    return None


def _current_directory() -> str:
    try:
        return os.fsencode(os.getcwd()).decode()
    except (FileNotFoundError, UnicodeDecodeError):
        # It was removed, or cannot be told to Nimbus: the workers have that of the daemons.
        return ""


def is_installed(path: PurePath) -> bool:
    """Whether packages are installed there, which workers import by themselves."""
    return bool(INSTALLED & set(path.parts))


def _archive(directory: Path, by_value: ModuleType | None) -> bytes:
    files = dict(_files_under(directory, by_value))
    if not files:
        return b""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        # A folder without __init__.py is a package only if the archive names it.
        for folder in sorted({f"{parent}/" for name in files for parent in PurePath(name).parents[:-1]}):
            archive.writestr(zipfile.ZipInfo(folder, _ZIP_TIME), b"")
        for name, path in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _ZIP_TIME), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return data.getvalue()


def _files_under(directory: Path, by_value: ModuleType | None) -> Iterator[tuple[str, Path]]:
    """(name in the archive, file) of each imported module under `directory`, but installed and Squall's ones.

    A package is whole: with modules that are imported later, and small files that its code reads.
    """
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if module is by_value or not isinstance(file, str) or not file.endswith(".py"):
            continue
        if name.partition(".")[0] == "squall":
            continue
        path = Path(file).resolve()
        if path.is_relative_to(directory) and not is_installed(path.relative_to(directory)):
            # The name under which the import system looks for it, whatever directory of the import path it is in.
            parts = name.replace(".", "/")
            if path.name == "__init__.py":
                yield from ((f"{parts}/{inner}", found) for inner, found in _package(path.parent))
            else:
                yield f"{parts}.py", path


def _package(folder: Path) -> list[tuple[str, Path]]:
    """(path in it, file) of each file of a package; none if it has compiled modules: no archive can hold them."""
    files = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in {"__pycache__", *INSTALLED}]
        for name in names:
            path = Path(parent, name)
            if name.endswith(".so"):
                return []
            small = not name.startswith(".") and path.is_file() and path.stat().st_size <= _DATA_BYTES
            if small or (name.endswith(".py") and path.is_file()):
                files.append((str(path.relative_to(folder)), path))
    return files
