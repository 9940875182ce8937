"""Sets the state that tasks of earlier topologies kept under a name aside, for a topology that begins anew.

Guarantees
    * Until the topology that begins anew is stored, the state is only set aside: if Nimbus dies in between, `tidy`
      removes the state that a stored topology has cast off and puts all other state back.
    * Dead letters, and the requests for them, are not tasks' state: they stay in place.

Relies on: no worker of that name running meanwhile. Thread: Nimbus's loop.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from pathlib import Path

from squall.engine.errors import ClusterError
from squall.ipc.run_parent import remove_tree
from squall.ipc.rundir import SET_ASIDE, RunDir
from squall.scheduler.common.messages import TopologyRecord
from squall.scheduler.records.earlier_state import left_by_earlier

log = logging.getLogger(__name__)


def set_aside(run_dir: RunDir, record: TopologyRecord) -> None:
    """Set state aside for a topology that will be stored next. ClusterError, and nothing is moved, if it cannot be."""
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
    """Put state back: the topology was refused. State that cannot be moved stays aside, and the log says where."""
    if not aside.is_dir():
        return
    try:
        for path in aside.iterdir():
            path.rename(aside.parent / path.name)
        aside.rmdir()
    except OSError as error:
        log.error("the state in %s cannot be put back: %s", aside, error)


def discard(aside: Path) -> None:
    """Remove state that was set aside: the topology is stored. The next Nimbus tries again if it fails."""
    if not aside.is_dir():
        return
    try:
        remove_tree(aside)
    except ClusterError as error:
        log.error("%s", error)


def tidy(run_dir: RunDir, stored: Iterable[TopologyRecord], unknown: Collection[str] = ()) -> None:
    """Finish with state that an earlier Nimbus had set aside. Call it before any request is served.

    State set aside for topologies with an id in `unknown` stays: they may be running.
    """
    cast_off = {run_dir.set_aside(record.name, record.id) for record in stored}
    for aside in sorted(run_dir.states.glob(f"*/{SET_ASIDE}*")):
        if aside in cast_off:
            discard(aside)
        elif aside.name.removeprefix(SET_ASIDE) not in unknown:
            log.warning("the state in %s is put back: no topology that began anew was stored", aside)
            put_back(aside)
