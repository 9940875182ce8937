"""What an operator can do about a store that Nimbus refuses: believe what can be read, or begin with an empty one.

Guarantees: nothing is deleted. What is replaced is moved to a directory `set-aside-<time>` in the run directory first.
Topologies that the new store does not know are left alone by Nimbus until `squall kill --unknown`.

Relies on: no Nimbus running in the directory; its lock is held meanwhile.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from squall.ipc.rundir import RunDir
from squall.scheduler.nimbus.leftovers import check_store_is_there
from squall.scheduler.nimbus.store import STORE_FILES, Store, StoreError


def examine(run_dir: RunDir) -> list[str]:
    """Names of the topologies in a store that is whole; StoreError if it is not. Changes nothing."""
    lock = run_dir.lock()
    try:
        check_store_is_there(run_dir)
        if not run_dir.nimbus_db.exists():
            return []
        with Store(run_dir.nimbus_db) as store:
            return [topology.record.name for topology in store.topologies()]
    finally:
        lock.release()


def believe(run_dir: RunDir) -> tuple[list[str], Path]:
    """Seal the store as it is: what can be read of it is right. Names of its topologies, and where a copy is of what
    was there. StoreError if it cannot be read."""
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
    """Make an empty store. Where the files of the old one are now."""
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
