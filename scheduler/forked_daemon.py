"""A daemon that is forked from a process which has its modules imported already, instead of executed anew.

Guarantees: it looks as if it had been executed: session, signals, descriptors, log, command line. It holds nothing of
its parent, and of its siblings only what `Launch.keep` names.

Relies on: `scheduler.forked_process` for what makes a fork safe; the parent having the run directory's mark in the
environment it was executed with. The parent's only thread.
"""

from __future__ import annotations

import importlib
import math
import os
import select
import signal
import subprocess
import sys
from typing import NoReturn

from scheduler.daemons import Launch
from scheduler.forked_process import fork, run_forked
from scheduler.process_title import set_title


class ForkedDaemon:
    """A child of this process; as `subprocess.Popen` as far as it goes."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Exit code, or minus the number of the signal that killed it; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. TimeoutExpired if it does not come in time."""
        if self.returncode is None:
            # Nobody else reaps our children, so the number is still its own.
            pidfd = os.pidfd_open(self.pid)
            try:
                select.select([pidfd], [], [], timeout)
            finally:
                os.close(pidfd)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", math.inf if timeout is None else timeout)
        return code

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)


def fork_daemon(launch: Launch) -> ForkedDaemon:
    """Fork one. ClusterError if it cannot be."""

    def child() -> NoReturn:
        run_forked(lambda: _run(launch), str(launch.log_path), launch.keep)

    return ForkedDaemon(fork(child))


def _run(launch: Launch) -> object:
    set_title(launch.command)
    sys.argv = [launch.module, *launch.arguments]
    return importlib.import_module(launch.module).main(launch.arguments)
