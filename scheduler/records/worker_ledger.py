"""What a supervisor notes about its workers, on disk: the present ones, for the supervisor after it, and every step.

Guarantees
    * An entry names one process for good (pid and start time), so a reused pid is never taken for a worker. An entry is
      whole or absent.
    * The history has a line for each step of a slot's life, written before the step is reported. It is bounded: one
      older file is kept. It alone tells whether a supervisor followed the rules: `tests/history_rules.py` judges it.

Relies on: one supervisor per node, which its socket ensures; the monotonic clock, which all processes of the machine
share. Entries of ended workers are harmless and stay.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from squall.engine.errors import ClusterError
from squall.ipc.private import append_bounded, read_lines, replace_file
from squall.ipc.rundir import RunDir
from squall.scheduler.common import process
from squall.scheduler.common.messages import SlotChanged, Wire, WorkerBoot

HISTORY_BYTES = 4 << 20
BEGIN = "supervisor"
"""Event, with port 0: a supervisor begins. Steps of workers while there was none are not in the history."""

log = logging.getLogger(__name__)


class LedgerEntry(Wire, frozen=True):
    """A worker that was forked."""

    boot: WorkerBoot
    pid: int
    start_time_ticks: int


def read_entry(path: Path) -> LedgerEntry:
    """OSError or ClusterError if it cannot be read."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=LedgerEntry)
    except ValueError as error:
        raise ClusterError(f"it does not decode: {error}") from None


class WorkerLedger:
    """One file per slot. Thread: the supervisor's loop."""

    def __init__(self, run_dir: RunDir, node: str) -> None:
        self._run_dir = run_dir
        self._node = node

    def write(self, boot: WorkerBoot, pid: int) -> None:
        """Note the present worker of a slot. If that fails, a successor cannot adopt the worker; nothing worse."""
        try:
            entry = LedgerEntry(boot, pid, process.start_time_ticks(pid))
            replace_file(self._path(boot.port), msgspec.msgpack.encode(entry))
        except (OSError, ClusterError) as error:
            log.warning("worker %d of port %d is not noted down: %s", pid, boot.port, error)

    def entry(self, port: int) -> LedgerEntry | None:
        """The note of the slot's last worker, dead or alive; None if it cannot be read."""
        try:
            return read_entry(self._path(port))
        except FileNotFoundError:
            return None
        except (OSError, ClusterError) as error:
            log.warning("the note of port %d's last worker cannot be read: %s", port, error)
            return None

    def note_step(self, step: SlotChanged) -> None:
        """Add a step to the history, without its error. OSError if the disk is full."""
        line = msgspec.json.encode(msgspec.structs.replace(step, error=""))
        append_bounded(self._run_dir.history(self._node), line.decode(), HISTORY_BYTES)

    def _path(self, port: int) -> Path:
        return self._run_dir.node_socket(self._node).with_name(f"{self._node}-{port}.worker")


def read_history(directory: Path) -> list[SlotChanged]:
    """The steps of all nodes whose histories are in a directory, in order of time."""
    paths = sorted(directory.glob("history-*.old")) + sorted(directory.glob("history-*.jsonl"))
    steps = [msgspec.json.decode(line, type=SlotChanged) for path in paths for line in read_lines(path)]
    return sorted(steps, key=lambda step: step.at_monotonic_secs)
