"""What tasks of earlier topologies have left under a name: a topology of that name goes on from it.

Process: any of the owner's.
"""

from __future__ import annotations

from pathlib import Path

from squall.ipc.rundir import LETTER_REQUESTS, SET_ASIDE, RunDir


def left_by_earlier(run_dir: RunDir, name: str) -> list[Path]:
    """The directories left by tasks of earlier topologies of that name; dead letters are no task's."""
    state = run_dir.topology_state(name)
    if not state.is_dir():
        return []
    return [path for path in state.iterdir() if path.is_dir() and not _stays(path)]


def _stays(path: Path) -> bool:
    return path.name == LETTER_REQUESTS or path.name.startswith(SET_ASIDE)
