"""What a supervisor leaves on disk about its workers, for the supervisor after it.

Guarantees: an entry names one process for good (pid and start time), so a reused pid is never taken for a worker. An
entry is there completely or not at all.

Relies on: one supervisor per node, which its socket sees to. Entries of workers that have ended are harmless and stay.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.errors import ClusterError
from ipc.rundir import RunDir
from scheduler import process
from scheduler.messages import Wire, WorkerBoot

log = logging.getLogger(__name__)


class LedgerEntry(Wire, frozen=True):
    """A worker that was forked."""

    boot: WorkerBoot
    pid: int
    start_time_ticks: int


@dataclass(frozen=True)
class Survivor:
    """A worker that outlived its supervisor. The pidfd belongs to whoever takes this."""

    boot: WorkerBoot
    pid: int
    pidfd: int


class WorkerLedger:
    """One file per slot. Owner: the supervisor's loop."""

    def __init__(self, run_dir: RunDir, node: str) -> None:
        self._run_dir = run_dir
        self._node = node

    def write(self, boot: WorkerBoot, pid: int) -> None:
        """Note the present worker of a slot. Without it a successor could not adopt the worker, nothing worse."""
        path = self._path(boot.port)
        temporary = path.with_suffix(".new")
        try:
            entry = LedgerEntry(boot, pid, process.start_time_ticks(pid))
            temporary.write_bytes(msgspec.msgpack.encode(entry))
            temporary.rename(path)
        except (OSError, ClusterError) as error:
            log.warning("worker %d of port %d is not noted down: %s", pid, boot.port, error)

    def survivor(self, port: int) -> Survivor | None:
        """The slot's last worker, if it lives."""
        entry = self._read(port)
        if entry is None:
            return None
        try:
            pidfd = process.open_pidfd(entry.pid)
        except ClusterError:
            return None
        try:
            # After the pidfd was opened: from here on the number cannot change its owner unnoticed.
            if process.start_time_ticks(entry.pid) == entry.start_time_ticks and process.send_signal(pidfd, 0):
                return Survivor(entry.boot, entry.pid, pidfd)
        except ClusterError as error:
            log.info("worker of port %d: %s", port, error)
        os.close(pidfd)
        return None

    def _read(self, port: int) -> LedgerEntry | None:
        try:
            return msgspec.msgpack.decode(self._path(port).read_bytes(), type=LedgerEntry)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            log.warning("the note of port %d's last worker cannot be read: %s", port, error)
            return None

    def _path(self, port: int) -> Path:
        return self._run_dir.node_socket(self._node).with_name(f"{self._node}-{port}.worker")
