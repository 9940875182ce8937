"""The failures that a topology's spouts were told of, and the trees that a worker ended by: files of one worker.

Guarantees: a file appears whole and outlives the worker, whose next incarnation goes on from its failures. Those of the
last `_PAUSE_NS` before a kill may be missing. A death that the board marks as explained has its last words on disk.

Process: the worker writes its file, any of the owner's may read it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, astuple
from pathlib import Path

import msgspec

from squall.engine.api.failure import Failure
from squall.engine.errors import ClusterError
from squall.engine.report.failure_log import FailureLog, Failures, cause_of_error, merge_failures
from squall.ipc.private import make_levels, replace_file
from squall.ipc.rundir import RunDir

_PAUSE_NS = 50_000_000
"""Shortest time between two writes: a death fails thousands of trees at once."""
_IN_FULL_SECS = 600.0
"""Time after which an error that goes on is told in full again."""


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
        _write(self._path, {name: asdict(known) for name, known in self.log.failures().items()})


def read_failures(run_dir: RunDir, topology_id: str, since_secs: float = 0.0) -> Failures:
    """The last failures of each component of a topology and their counts by reason; `at_secs` of each counts from
    `since_secs` of the monotonic clock. Empty if nothing failed."""
    return merge_failures((_read(path) for path in sorted(run_dir.failures(topology_id).glob("*.json"))), since_secs)


def _read(path: Path) -> Failures:
    try:
        return msgspec.convert(json.loads(path.read_bytes()), Failures)
    except ValueError as error:
        raise ClusterError(f"{path} is no list of failures: {error}") from error


def times_lately(run_dir: RunDir, topology_id: str, error: str) -> int:
    """Count how often workers of a topology have ended by errors of this cause, since it was last told in full. Of two
    that end at the same time one may not be counted."""
    path, now, cause = run_dir.failures(topology_id) / "told-errors", time.monotonic(), repr(cause_of_error(error))
    times, since = 1, now
    with contextlib.suppress(OSError):  # it cannot be noted, as on a full disk: told in full
        told = json.loads(path.read_bytes()) if path.exists() else {}
        # The clock begins anew with the machine.
        told = {key: (count, began) for key, (count, began) in told.items() if 0 <= now - began < _IN_FULL_SECS}
        before, since = told.get(cause, (0, now))
        times = before + 1
        _write(path, told | {cause: (times, since)})
    return times


def write_stopped(run_dir: RunDir, topology_id: str, why: str) -> None:
    """Say why a topology has stopped; what another worker has said before stays."""
    path = run_dir.stopped(topology_id)
    if not path.exists():
        _write(path, why)


def read_stopped(run_dir: RunDir, topology_id: str) -> str:
    """Why a topology has stopped at a fault of its set-up; "" if it has not."""
    try:
        return str(json.loads(run_dir.stopped(topology_id).read_bytes()))
    except FileNotFoundError:
        return ""


def write_last_words(
    run_dir: RunDir, topology_id: str, worker: int, incarnation: int, failures: Mapping[int, Failure]
) -> None:
    """Leave the trees that a worker ends by for the others. It sends the same to their ackers, but a frame that arrives
    after the news of the death is refused; so it calls this before it publishes that it has explained itself."""
    rows = [(root, *astuple(failure)) for root, failure in failures.items()]
    _write(run_dir.last_words(topology_id, worker, incarnation), rows)


def read_last_words(run_dir: RunDir, topology_id: str, worker: int, incarnation: int) -> dict[int, Failure]:
    """Root -> failure of the trees that an incarnation ended by."""
    rows = json.loads(run_dir.last_words(topology_id, worker, incarnation).read_bytes())
    return {root: Failure(*failure) for root, *failure in rows}


def _write(path: Path, value: object) -> None:
    make_levels(path.parent, 2)
    replace_file(path, json.dumps(value).encode())
