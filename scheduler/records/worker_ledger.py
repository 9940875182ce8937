"""Notes of a supervisor about its workers, on disk, for the supervisor after it.

Guarantees: an entry names one process for good (pid and start time), so a reused pid is never taken for a worker. An
entry is whole or absent, and one that was altered is refused.

Relies on: one supervisor per node, which its socket ensures. Entries of ended workers are harmless and stay.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

import msgspec

from squall.engine.errors import ClusterError
from squall.ipc.private import gone_if_failed
from squall.ipc.rundir import RunDir
from squall.scheduler.common import process
from squall.scheduler.common.messages import Wire, WorkerBoot

_DIGEST_BYTES = 16

log = logging.getLogger(__name__)


class LedgerEntry(Wire, frozen=True):
    """A worker that was forked."""

    boot: WorkerBoot
    pid: int
    start_time_ticks: int


@dataclass(frozen=True)
class Survivor:
    """A worker that outlived its supervisor. Whoever takes this owns the pidfd."""

    boot: WorkerBoot
    pid: int
    pidfd: int


def encode_entry(entry: LedgerEntry) -> bytes:
    """An entry's form on disk: its digest, then itself."""
    body = msgspec.msgpack.encode(entry)
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() + body


def decode_entry(data: bytes) -> LedgerEntry:
    """Reverse `encode_entry`; ClusterError if the data was altered, so that nobody acts on a wrong pid or work."""
    digest, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != digest:
        raise ClusterError("it is damaged")
    try:
        return msgspec.msgpack.decode(body, type=LedgerEntry)
    except msgspec.DecodeError as error:
        raise ClusterError(f"it does not decode: {error}") from None


class WorkerLedger:
    """One file per slot. Thread: the supervisor's loop."""

    def __init__(self, run_dir: RunDir, node: str) -> None:
        self._run_dir = run_dir
        self._node = node

    def write(self, boot: WorkerBoot, pid: int) -> None:
        """Note the present worker of a slot. If that fails, a successor cannot adopt the worker; nothing worse."""
        path = self._path(boot.port)
        temporary = path.with_suffix(".new")
        try:
            entry = LedgerEntry(boot, pid, process.start_time_ticks(pid))
            with gone_if_failed(temporary):
                temporary.write_bytes(encode_entry(entry))
                temporary.rename(path)
        except (OSError, ClusterError) as error:
            log.warning("worker %d of port %d is not noted down: %s", pid, boot.port, error)

    def survivor(self, port: int) -> Survivor | None:
        """The slot's last worker, if it lives."""
        entry = self.entry(port)
        if entry is None:
            return None
        try:
            return Survivor(entry.boot, entry.pid, process.open_proven(entry.pid, entry.start_time_ticks))
        except ClusterError as error:
            log.info("worker of port %d: %s", port, error)
            return None

    def entry(self, port: int) -> LedgerEntry | None:
        """The note of the slot's last worker, dead or alive; None if it cannot be read."""
        try:
            return decode_entry(self._path(port).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ClusterError) as error:
            log.warning("the note of port %d's last worker cannot be read: %s", port, error)
            return None

    def _path(self, port: int) -> Path:
        return self._run_dir.node_socket(self._node).with_name(f"{self._node}-{port}.worker")
