"""Repairs a store that Nimbus refuses: believes its readable rows, or begins with an empty store.

Guarantees: nothing is deleted. Files that are replaced are first moved to a directory `set-aside-<time>` in the run
directory. Nimbus leaves topologies that the new store does not know alone until `squall kill --unknown`.

Relies on: no Nimbus running in the directory; its lock is held meanwhile.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import TopologyRecord
from squall.scheduler.nimbus.leftovers import check_store_is_there
from squall.scheduler.nimbus.store import STORE_FILES, Store, StoreError


def examine(run_dir: RunDir) -> list[str]:
    """Names of the topologies in an undamaged store; StoreError if it is damaged. Changes nothing."""
    with kept_topologies(run_dir) as records:
        return [record.name for record in records]


@contextlib.contextmanager
def kept_topologies(run_dir: RunDir) -> Iterator[list[TopologyRecord]]:
    """The topologies in an undamaged store, which go on with the next Nimbus; none can start meanwhile. StoreError if
    it is damaged. Changes nothing."""
    lock = run_dir.lock()
    try:
        check_store_is_there(run_dir)
        records = []
        if run_dir.nimbus_db.exists():
            with Store(run_dir.nimbus_db) as store:
                records = [topology.record for topology in store.topologies()]
        yield records
    finally:
        lock.release()


def believe(run_dir: RunDir) -> tuple[list[str], Path]:
    """Seal the store with the rows as they are; returns the names of its topologies, and the directory of a copy.
    StoreError if it cannot be read."""
    lock = run_dir.lock()
    try:
        if not run_dir.nimbus_db.exists():
            raise StoreError(f"store {run_dir.nimbus_db} is missing: there is nothing to be read")
        aside = _aside(run_dir)
        for name in STORE_FILES:
            if (run_dir.durable / name).exists():
                shutil.copy2(run_dir.durable / name, aside / name)
        with Store(run_dir.nimbus_db, believe=True) as store:
            return [topology.record.name for topology in store.topologies()], aside
    finally:
        lock.release()


def begin_empty(run_dir: RunDir) -> Path:
    """Make an empty store; returns the directory that has the old one's files."""
    lock = run_dir.lock()
    try:
        aside = _aside(run_dir)
        for name in STORE_FILES:
            if (run_dir.durable / name).exists():
                (run_dir.durable / name).rename(aside / name)
        Store(run_dir.nimbus_db).close()
        return aside
    finally:
        lock.release()


def _aside(run_dir: RunDir) -> Path:
    path = run_dir.durable / f"set-aside-{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns() % 1000:03}"
    path.mkdir(mode=0o700)
    return path
