"""Holds the lock of Nimbus's store, as a foreign process would (an operator's sqlite3 shell).

Guarantees: nothing is written; the lock is released at the end of the fault, or of this process.

Thread: the supervisor's loop.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

RETRY_SECS = 0.05
"""Between two tries while Nimbus itself holds the lock: its transactions take milliseconds."""


class StoreLock:
    """The lock, held or not."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None

    @property
    def is_held(self) -> bool:
        return self._db is not None

    def hold(self) -> None:
        """Take the lock, unless another process has it now."""
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
