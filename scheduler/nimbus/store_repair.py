"""What an operator can do about a store that Nimbus refuses: look at it, or begin with an empty one.

Guarantees: nothing is deleted. Files that are replaced are first moved to a directory `set-aside-<time>` in the run
directory. Nimbus leaves topologies that the new store does not know alone until `squall kill --unknown`.

Relies on: no Nimbus running in the directory; its lock is held meanwhile.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import TopologyRecord
from squall.scheduler.nimbus.leftovers import check_store_is_there
from squall.scheduler.nimbus.store import STORE_FILES, Store


@contextlib.contextmanager
def kept_topologies(run_dir: RunDir) -> Iterator[list[TopologyRecord]]:
    """The topologies that go on with the next Nimbus; none can start meanwhile. StoreError if that would refuse the
    store."""
    lock = run_dir.lock()
    try:
        records = []
        if check_store_is_there(run_dir):
            with Store(run_dir.nimbus_db) as store:
                records = [topology.record for topology in store.topologies()]
        yield records
    finally:
        lock.release()


def begin_empty(run_dir: RunDir) -> Path:
    """Make an empty store; returns the directory that has the old one's files."""
    lock = run_dir.lock()
    try:
        aside = run_dir.durable / f"set-aside-{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns() % 1000:03}"
        aside.mkdir(mode=0o700)
        for name in STORE_FILES:
            if (run_dir.durable / name).exists():
                (run_dir.durable / name).rename(aside / name)
        Store(run_dir.nimbus_db).close()
        return aside
    finally:
        lock.release()
