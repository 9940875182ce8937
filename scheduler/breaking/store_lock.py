"""Holding the lock of Nimbus's store, as a foreign process would (somebody's sqlite3 shell).

Guarantees: nothing is written; the lock is given back at the end, or with this process. Owner: the loop of the
supervisor that carries it out.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

RETRY_SECS = 0.05
"""How soon it is tried again while Nimbus itself holds the lock."""


class StoreLock:
    """Held or not."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None

    @property
    def is_held(self) -> bool:
        return self._db is not None

    def hold(self) -> None:
        """Unless somebody else has it at the moment."""
        if self._db is not None or not self._path.exists():
            return
        db = sqlite3.connect(self._path, timeout=0, isolation_level=None)
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            db.close()
            return
        self._db = db

    def release(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):  # the file may have gone
                self._db.execute("ROLLBACK")
            self._db.close()
            self._db = None
