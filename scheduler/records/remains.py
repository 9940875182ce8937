"""Logs and state on disk of topologies that are gone, and the copies that runs have kept of their dead letters.

Guarantees: nothing of a topology that is in the cluster is listed, and no directory whose name cannot be that of a
topology: people keep things of their own there. Nothing is removed under a Nimbus.

Relies on: the caller excluding submissions meanwhile (`CodeStore.alone`), which could take up the state.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from squall.ipc.rundir import LETTER_REQUESTS, RunDir
from squall.scheduler.common.messages import TopologyRecord
from squall.scheduler.records.dead_letters import DeadLetters
from squall.scheduler.records.kept_state import kept_copies

LOGS, STATE, COPY = "logs", "state", "copy"
_ID = re.compile(r"(.+)-\d+-[0-9a-f]{8}", re.DOTALL)


@dataclass(frozen=True)
class Remains:
    """A directory that a topology has left."""

    name: str
    """The name of the topology; as a file name, if it has letters that no file name may have."""
    kind: str
    """"logs", "state", or "copy": a run directory that holds state with dead letters."""
    path: Path
    bytes: int
    changed_unix_secs: float
    """When a file in it was changed last."""
    dead_letters: int = 0
    """Messages that it answers for: given up, or asked back and not emitted again yet."""

    def remove(self) -> None:
        """OSError if it cannot be removed; UsageError if it is a copy that is in use."""
        held = RunDir(self.path).lock() if self.kind == COPY else None
        shutil.rmtree(self.path)
        if held is not None:
            held.release()


def remains(run_dir: RunDir, records: Collection[TopologyRecord]) -> list[Remains]:
    """What topologies have left that are not among these."""
    in_use = {run_dir.worker_logs(record.id) for record in records}
    in_use |= {run_dir.topology_state(record.name) for record in records}
    logs = [path for path in _folders(run_dir.logs) if path not in in_use and _is_id(path.name)]
    states = [path for path in _folders(run_dir.states) if path not in in_use and _is_name(path.name)]
    found = [_measured(path.name.rsplit("-", 2)[0], LOGS, path) for path in logs]
    found += [_measured(path.name, STATE, path, _dead_letters(path)) for path in states]
    return sorted(found, key=lambda one: (one.name, one.kind, str(one.path)))


def copies() -> list[Remains]:
    """The copies that no cluster uses now, in the usual places of this user."""
    found = []
    for name, run_dir in kept_copies():
        letters = sum(map(_dead_letters, _folders(run_dir.states)))
        # A look at the directory's lock changes the directory, and not its state.
        changed = _measured(name, COPY, run_dir.states).changed_unix_secs
        found.append(replace(_measured(name, COPY, run_dir.path, letters), changed_unix_secs=changed))
    return sorted(found, key=lambda one: (one.name, str(one.path)))


def _is_id(name: str) -> bool:
    parts = _ID.fullmatch(name)
    return parts is not None and _is_name(parts[1])


def _is_name(name: str) -> bool:
    return name.isprintable() and not set(name) & set(".:\\")


def _folders(directory: Path) -> list[Path]:
    every = directory.iterdir() if directory.is_dir() else ()
    return [path for path in every if path.is_dir() and not path.is_symlink()]


def _dead_letters(state: Path) -> int:
    letters, damage = DeadLetters(state).look()
    asked = state / LETTER_REQUESTS
    return len(letters) + len(damage) + (len(os.listdir(asked)) if asked.is_dir() else 0)


def _measured(name: str, kind: str, path: Path, dead_letters: int = 0) -> Remains:
    every = [path.lstat(), *_files(path)]
    size, changed = sum(one.st_size for one in every[1:]), max(one.st_mtime for one in every)
    return Remains(name, kind, path, size, changed, dead_letters)


def _files(path: Path) -> Iterator[os.stat_result]:
    for folder, _, names in os.walk(path):
        for name in names:
            yield os.lstat(os.path.join(folder, name))
