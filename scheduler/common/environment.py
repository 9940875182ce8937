"""What a topology's submitter gave to its workers: variables, the working directory, the import path.

Guarantees
    * Values are in one file per topology, which only its owner can read; no message but the submission, no record and
      no log holds them.
    * A worker either has them all, or does not start, and says why.
    * Users' modules are behind the standard library and before installed packages, in launcher and workers alike: a
      user's file with the name of a standard module (`queue.py`) does not replace that module.

Relies on: the run directory, which is closed to others. Process: Nimbus writes, workers read.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from squall.engine.errors import ClusterError
from squall.ipc.private import make_directory, replace_file
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import TopologyRecord

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def environment_mistakes(variables: Mapping[str, str]) -> list[str]:
    """What is wrong with these variables; never quotes a value."""
    mistakes = []
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            mistakes.append(f"variable name {name!r:.80} is not allowed: letters, digits and _, not a digit first")
        if "\0" in value:
            mistakes.append(f"the value of variable {name!r:.80} has a NUL")
    return mistakes


def keep_environment(run_dir: RunDir, topology_id: str, variables: Mapping[str, str]) -> None:
    """Write the variables of a topology to disk. ClusterError if they cannot be."""
    path = run_dir.environment(topology_id)
    try:
        make_directory(path.parent)
        replace_file(path, msgspec.json.encode(variables), sync=True)
    except OSError as error:
        raise ClusterError(f"cannot keep the variables of {topology_id} in {path}: {error.strerror}") from None


def forget_environment(run_dir: RunDir, topology_id: str) -> None:
    run_dir.environment(topology_id).unlink(missing_ok=True)


def tidy_environments(run_dir: RunDir, ids: Collection[str]) -> None:
    """Remove the variables of all topologies but these."""
    kept = {run_dir.environment(topology_id) for topology_id in ids}
    folder = run_dir.environments
    for path in folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ():
        if path not in kept:
            path.unlink(missing_ok=True)


def enter_surroundings(run_dir: RunDir, record: TopologyRecord) -> None:
    """Take on what the submitter gave, in a worker, before its code is loaded. ClusterError if that is impossible."""
    if record.cwd:
        try:
            os.chdir(record.cwd)
        except OSError as error:
            raise ClusterError(
                f"cannot enter the working directory of {record.name}, {record.cwd}: {error.strerror}; "
                f"make it, or submit the topology again from another one"
            ) from None
    os.environ.update(environment_of(run_dir, record))


def environment_of(run_dir: RunDir, record: TopologyRecord) -> dict[str, str]:
    """The variables of a topology. ClusterError if they cannot be read."""
    if not record.env_names:
        return {}
    path = run_dir.environment(record.id)
    try:
        variables = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is damaged"
        raise ClusterError(f"cannot read the variables of {record.name} in {path}: {why}; submit it again") from None
    missing = sorted({*record.env_names} - {*variables})
    if missing:
        raise ClusterError(f"{path} lacks the variables {', '.join(missing)} of {record.name}; submit it again")
    return variables


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
