"""What the tasks of earlier topologies have kept under a name, and taking it from the next topology of that name.

Guarantees
    * Until a topology that begins anew is stored, the state is aside, and not gone: whoever dies in between leaves it
      to `tidy`, which removes what a stored topology has cast off and puts everything else back.
    * Dead letters, and the requests for them, are no state of tasks: they stay where they are.

Relies on: no worker of that name running meanwhile. `left_by_earlier`: any process of the
owner. Everything else: Nimbus's loop.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from pathlib import Path

from squall.engine.errors import ClusterError
from squall.ipc.run_parent import remove_tree
from squall.ipc.rundir import LETTER_REQUESTS, SET_ASIDE, RunDir
from squall.scheduler.common.messages import TopologyRecord

log = logging.getLogger(__name__)


def left_by_earlier(run_dir: RunDir, name: str) -> list[Path]:
    """The directories that tasks of earlier topologies of that name have left."""
    state = run_dir.topology_state(name)
    if not state.is_dir():
        return []
    return [path for path in state.iterdir() if path.is_dir() and not _stays(path)]


def set_aside(run_dir: RunDir, record: TopologyRecord) -> None:
    """Out of the way of a topology that is about to be stored. ClusterError, and nothing moved, if that cannot be."""
    paths = left_by_earlier(run_dir, record.name)
    if not paths:
        return
    aside = run_dir.set_aside(record.name, record.id)
    try:
        aside.mkdir(mode=0o700)
        for path in paths:
            path.rename(aside / path.name)
    except OSError as error:
        put_back(aside)
        raise ClusterError(f"cannot set aside the state of an earlier {record.name}: {error}") from error


def put_back(aside: Path) -> None:
    """The topology was refused. What cannot be put back stays aside, and the log says where."""
    if not aside.is_dir():
        return
    try:
        for path in aside.iterdir():
            path.rename(aside.parent / path.name)
        aside.rmdir()
    except OSError as error:
        log.error("the state in %s cannot be put back: %s", aside, error)


def discard(aside: Path) -> None:
    """The topology is stored and needs nothing of it. What cannot be removed is tried again by the next Nimbus."""
    if not aside.is_dir():
        return
    try:
        remove_tree(aside)
    except ClusterError as error:
        log.error("%s", error)


def tidy(run_dir: RunDir, stored: Iterable[TopologyRecord], unknown: Collection[str] = ()) -> None:
    """What an earlier Nimbus had set aside when it ended. Called before anything is served.

    What topologies with an id in `unknown` have set aside stays: they may be running.
    """
    cast_off = {run_dir.set_aside(record.name, record.id) for record in stored}
    for aside in sorted(run_dir.states.glob(f"*/{SET_ASIDE}*")):
        if aside in cast_off:
            discard(aside)
        elif aside.name.removeprefix(SET_ASIDE) not in unknown:
            log.warning("the state in %s is put back: no topology that began anew was stored", aside)
            put_back(aside)


def _stays(path: Path) -> bool:
    return path.name == LETTER_REQUESTS or path.name.startswith(SET_ASIDE)
