"""Keeps the state of a topology whose run directory is about to be removed, so that its dead letters outlive the run.

Guarantees: the copy is a run directory: `squall dead-letters X --dir` reads it, and `squall run --dir` goes on from it,
with every position and count as the topology left them.

Relies on: the topology's workers having ended. Process: the owner of the anonymous run directory.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.run_parent import durable_parents
from squall.ipc.rundir import RunDir, default_parent
from squall.scheduler.records.dead_letters import LEDGER, DeadLetters

_NAME_CHARACTERS = 24
"""Characters of the topology's name in the directory's name: socket paths below it must fit into 107 bytes."""
_COPY = re.compile(rf"(.{{1,{_NAME_CHARACTERS}}})-[0-9a-f]{{8}}", re.DOTALL)


def keep_dead_letters(run_dir: RunDir, topology_name: str, copy: bool) -> tuple[Path, int] | None:
    """Keep the dead letters of a topology; returns their directory and number, None if there are none. With `copy`,
    copy its state to a directory of its own; ClusterError if no place for it can be written."""
    state = run_dir.topology_state(topology_name)
    # Count lines that cannot be read, too.
    letters, damage = DeadLetters(state).look()
    count = len(letters) + len(damage)
    if not count:
        return None
    if not copy:
        return run_dir.path, count
    name = f"{state.name[:_NAME_CHARACTERS]}-{os.urandom(4).hex()}"
    refused = []
    # The last one does not survive a reboot.
    for parent in (*durable_parents(), default_parent()):
        try:
            return _copied(state, parent / name, topology_name), count
        except (OSError, UsageError) as error:
            refused.append(str(error))
    raise ClusterError("; ".join(refused))


def _copied(state: Path, path: Path, topology_name: str) -> Path:
    """Copy a topology's state into a run directory of its own; on an error nothing of it stays."""
    kept = RunDir.create(path)
    try:
        shutil.copytree(state, kept.topology_state(topology_name))
    except BaseException:
        kept.remove()
        raise
    return kept.path


def kept_copies() -> Iterator[tuple[str, RunDir]]:
    """(topology name, run directory) of each copy that no cluster uses now."""
    for path in _in_usual_places():
        name = _COPY.fullmatch(path.name)
        run_dir = RunDir(path)
        if name is None or path.is_symlink() or not run_dir.key_file.is_file() or run_dir.lock_holder() is not None:
            continue
        states = [state.name for state in run_dir.states.glob("*/") if state.name[:_NAME_CHARACTERS] == name[1]]
        if states:
            yield states[0], run_dir


def find_dead_letters(topology_name: str, named: Path | None = None) -> RunDir | None:
    """Of the usual run directories and the one `named`, the one whose ledger of this topology was written last."""
    found = []
    for path in _candidates(named):
        ledger = RunDir(path).topology_state(topology_name) / LEDGER
        if ledger.exists():
            found.append((ledger.stat().st_mtime_ns, path))
    return RunDir(max(found)[1]) if found else None


def names_with_dead_letters(named: Path | None = None) -> list[str]:
    """Names of the topologies that `find_dead_letters` would find."""
    return sorted({ledger.parent.name for path in _candidates(named) for ledger in path.glob(f"state/*/{LEDGER}")})


def _candidates(named: Path | None) -> Iterator[Path]:
    if named is not None:
        yield named.absolute()
    yield from _in_usual_places()


def _in_usual_places() -> Iterator[Path]:
    for parent in (default_parent(), *durable_parents()):
        yield from parent.glob("*/")
