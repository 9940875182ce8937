"""The failures that a topology's spouts were told of, on disk beside the status board: one file per worker.

Guarantees: the file appears whole; it outlives the worker, whose next incarnation goes on from it. Failures of the last
`_PAUSE_NS` before a kill may be missing.

Process: the worker writes its file, any of the owner's may read it.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from squall.engine.errors import ClusterError
from squall.engine.report.failure_log import ComponentFailures, FailureLog, FailureRecord, Failures, merge_failures
from squall.ipc.private import gone_if_failed, make_levels
from squall.ipc.rundir import RunDir

_PAUSE_NS = 50_000_000
"""Shortest time between two writes: a death fails thousands of trees at once."""


class FailureFile:
    """The file of one worker, for its incarnations in turn."""

    def __init__(self, run_dir: RunDir, topology_id: str, worker: int) -> None:
        self.log = FailureLog(time.monotonic_ns)
        self._path = run_dir.failures(topology_id) / f"{worker}.json"
        self._written_ns = 0
        if self._path.exists():
            self.log.load(_read(self._path))

    def publish(self, now_ns: int, at_once: bool = False) -> None:
        """Write new failures, unless the last write was a moment ago."""
        if not self.log.changed or (now_ns - self._written_ns < _PAUSE_NS and not at_once):
            return
        self._written_ns = now_ns
        self.log.changed = False
        make_levels(self._path.parent, 2)
        temporary = self._path.with_suffix(".new")
        with gone_if_failed(temporary):
            temporary.write_text(json.dumps({name: asdict(known) for name, known in self.log.failures().items()}))
            os.replace(temporary, self._path)


def read_failures(run_dir: RunDir, topology_id: str, since_secs: float = 0.0) -> Failures:
    """The last failures of each component of a topology and their counts by reason; `at_secs` of each counts from
    `since_secs` of the monotonic clock. Empty if nothing failed."""
    return merge_failures((_read(path) for path in sorted(run_dir.failures(topology_id).glob("*.json"))), since_secs)


def _read(path: Path) -> Failures:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        return {
            name: ComponentFailures(known["counts"], [FailureRecord(**record) for record in known["last"]])
            for name, known in found.items()
        }
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterError(f"{path} is no list of failures: {error}") from error
