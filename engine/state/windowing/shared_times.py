"""The times of partitions, as the tasks of one bolt with windows tell each other: a SQLite file in the directory that
they share. It only carries what each task has in its own state; lost, it is written anew.

Guarantees: what a task has told is seen by the others at their next look. Thread: the task's.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping

from squall.engine.errors import ClusterError
from squall.engine.foreign.text import message_of
from squall.engine.state.records.lineage import Partition
from squall.engine.state.task_store import Reader
from squall.engine.state.windowing.event_time import Heard

_FILE = "times-{:x}.db"
_TABLE = """CREATE TABLE IF NOT EXISTS times (
    partition INTEGER, task INTEGER, time INTEGER, seen INTEGER, PRIMARY KEY (partition, task)) WITHOUT ROWID"""


class SharedTimes:
    """What all tasks of a bolt know of partitions."""

    def __init__(self, directory: str, task: int, shape: int) -> None:
        """`directory`: the one that the tasks share; `shape`: of the topology, by which partitions have their numbers.
        """
        file = _FILE.format(shape)
        self._path, self._task = os.path.join(directory, file), task
        self._reader = Reader(directory, file)
        self._told: dict[Partition, Heard] = {}
        self.heard: dict[Partition, Heard] = {}
        try:
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=30)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")  # a power loss may take commits, and damages nothing
            self._db.execute(_TABLE)
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _error(self, error: sqlite3.Error) -> ClusterError:
        return ClusterError(f"{self._path}, the times of partitions, cannot be used: {message_of(error)}")

    def exchange(self, own: Mapping[Partition, Heard]) -> Mapping[Partition, Heard]:
        """Tell what this task knows; return what all know together."""
        told, task = self._told, self._task
        news = [(partition, task, *heard) for partition, heard in own.items() if heard != told.get(partition)]
        if news:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.executemany("INSERT OR REPLACE INTO times VALUES (?, ?, ?, ?)", news)
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                raise self._error(error) from error
            self._told = dict(own)
        changed = self._reader.changed("SELECT partition, max(time), sum(seen) FROM times GROUP BY partition")
        if changed is not None:
            self.heard = {partition: Heard(time, seen) for partition, time, seen in changed[0]}
        return self.heard

    def close(self) -> None:
        self._db.close()
        self._reader.close()
