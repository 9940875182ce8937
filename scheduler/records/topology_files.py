"""What topologies leave on disk: state for the next one of their name, dead letters, logs.

Guarantees
    * The copy of dead letters that outlives an anonymous run directory is a run directory itself:
      `squall dead-letters X --dir` reads it, and `squall run --dir` goes on from it, with every position and count.
    * `topology_files` lists nothing of a topology that is in the cluster, and no directory whose name cannot be
      that of a topology: people keep things of their own there. Nothing is removed under a Nimbus.

Relies on: the workers of a topology whose state is copied having ended; the caller of `topology_files` excluding
submissions meanwhile (`CodeStore.alone`), which could take up the state. Process: any of the owner's.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.run_parent import default_parent, durable_parents
from squall.ipc.rundir import LETTER_REQUESTS, SET_ASIDE, RunDir, named_by
from squall.scheduler.common.messages import TopologyRecord
from squall.scheduler.records.dead_letters import LEDGER, DeadLetters

LOGS, STATE = "logs", "state"
_NAME_CHARACTERS = 24
"""Characters of the topology's name in the name of a copy: socket paths below it must fit into 107 bytes."""
_ID = re.compile(r"(.+)-\d+-[0-9a-f]{8}", re.DOTALL)


def left_by_earlier(run_dir: RunDir, name: str) -> list[Path]:
    """The directories that tasks of earlier topologies of that name have left: the next one goes on from them."""
    return [
        path for path in _folders(run_dir.topology_state(name))
        if path.name != LETTER_REQUESTS and not path.name.startswith(SET_ASIDE)
    ]


def keep_dead_letters(run_dir: RunDir, topology_name: str, copy: bool) -> tuple[Path, int] | None:
    """Keep the dead letters of a topology; returns their directory and number, None if there are none. With `copy`,
    copy its state to a directory of its own; ClusterError if no place for it can be written."""
    state = run_dir.topology_state(topology_name)
    count = _dead_letters(state)
    if not count:
        return None
    if not copy:
        return run_dir.path, count
    name = f"{state.name[:_NAME_CHARACTERS]}-{os.urandom(4).hex()}"
    refused = []
    # The last one does not survive a reboot.
    for parent in (*durable_parents(), default_parent()):
        try:
            kept = RunDir.create(parent / name)
            shutil.copytree(state, kept.topology_state(topology_name))
        except (OSError, UsageError) as error:
            shutil.rmtree(parent / name, ignore_errors=True)
            refused.append(str(error))
        else:
            return kept.path, count
    raise ClusterError("; ".join(refused))


def find_dead_letters(topology_name: str, named: Path | None = None) -> RunDir | None:
    """Of the usual run directories and the one `named`, the one whose ledger of this topology was written last."""
    places = [] if named is None else [named.absolute()]
    for parent in (default_parent(), *durable_parents()):
        places += parent.glob("*/")
    ledgers = ((RunDir(path).topology_state(topology_name) / LEDGER, path) for path in places)
    found = [(ledger.stat().st_mtime_ns, path) for ledger, path in ledgers if ledger.exists()]
    return RunDir(max(found)[1]) if found else None


@dataclass(frozen=True)
class TopologyFiles:
    """A directory that a topology has left."""

    name: str
    """The name of the topology."""
    kind: str
    """"logs" or "state"."""
    path: Path
    bytes: int
    changed_unix_secs: float
    """When a file in it was changed last."""
    dead_letters: int = 0
    """Messages that it answers for: given up, or asked back and not emitted again yet."""

    def remove(self) -> None:
        """OSError if it cannot be removed."""
        shutil.rmtree(self.path)


def topology_files(run_dir: RunDir, records: Collection[TopologyRecord]) -> list[TopologyFiles]:
    """What topologies have left that are not among these."""
    in_use = {run_dir.worker_logs(record.id) for record in records}
    in_use |= {run_dir.topology_state(record.name) for record in records}
    found = []
    for path in (*_folders(run_dir.logs), *_folders(run_dir.states)):
        is_state = path.parent == run_dir.states
        match = _ID.fullmatch(path.name)
        name = named_by(path.name if is_state else match[1] if match else "")
        if name and path not in in_use and name.isprintable() and not set(name) & set(".:\\"):
            letters = _dead_letters(path) if is_state else 0
            found.append(_measured(name, STATE if is_state else LOGS, path, letters))
    return sorted(found, key=lambda one: (one.name, one.kind, str(one.path)))


def _folders(directory: Path) -> list[Path]:
    every = directory.iterdir() if directory.is_dir() else ()
    return [path for path in every if path.is_dir() and not path.is_symlink()]


def _dead_letters(state: Path) -> int:
    """The number of letters, with lines that cannot be read and letters that are asked back."""
    letters, damage = DeadLetters(state).look()
    asked = state / LETTER_REQUESTS
    return len(letters) + len(damage) + sum(1 for _ in asked.glob("*/*"))


def _measured(name: str, kind: str, path: Path, dead_letters: int) -> TopologyFiles:
    files = list(_files(path))
    changed = max(one.st_mtime for one in (path.lstat(), *files))
    return TopologyFiles(name, kind, path, sum(one.st_size for one in files), changed, dead_letters)


def _files(path: Path) -> Iterator[os.stat_result]:
    for folder, _, names in os.walk(path):
        for name in names:
            yield os.lstat(os.path.join(folder, name))
