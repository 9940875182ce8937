"""A daemon or keeper that is not this process's child, held by a pidfd, with the interface of `Popen`.

Guarantees: a signal reaches this process or none. Its end is seen at once; its exit code is the one in its record, or
UNSEEN if it wrote none.

Relies on: `scheduler.common.process_record`. Thread: the one that made it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

from squall.engine.errors import ClusterError
from squall.scheduler.common.process import open_pidfd, send_signal
from squall.scheduler.common.process_record import read_record

UNSEEN = 256
"""Exit code of a process that wrote none at its end; above all real ones. Most likely it was killed."""


class AdoptedProcess:
    """One process; a ChildProcess."""

    def __init__(self, pid: int, record: Path) -> None:
        """`pid` 0: the process ended before it was found."""
        self.pid = pid
        self._record = record
        self._pidfd = -1
        self._code: int | None = None
        try:
            self._pidfd = open_pidfd(pid)
        except ClusterError:
            self._code = self._said()

    def poll(self) -> int | None:
        """The exit code; None while the process runs."""
        if self._code is None and select.select([self._pidfd], [], [], 0)[0]:
            os.close(self._pidfd)
            self._code = self._said()
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; returns the exit code. TimeoutExpired if the process does not end in time."""
        if self._code is None:
            select.select([self._pidfd], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, signum: int) -> None:
        if self.poll() is None:
            send_signal(self._pidfd, signum)

    def _said(self) -> int:
        record = read_record(self._record)
        if record is None or record.end_code is None or (self.pid and record.pid != self.pid):
            return UNSEEN
        return record.end_code
