"""Runs a module's `main` in a process that is forked from one that has imported it, instead of executed.

Guarantees: the process looks as if it had been executed: session, signals, descriptors. Of its parent's descriptors it
has those that `pass_fds` names.

Relies on: `scheduler.forking.child` for what makes a fork safe; the parent having the run directory's mark in the
environment it was executed with; `main` saying what the process is (`show_role`), because until then it looks like its
parent. Thread: the parent's only one.
"""

from __future__ import annotations

import importlib
import math
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from squall.scheduler.forking.child import fork, run_forked


class ChildProcess(Protocol):
    """A child of this process, forked or executed: the part of `subprocess.Popen` that callers use."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class ForkedModule:
    """A forked child of this process, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or minus the number of the signal that killed it; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. TimeoutExpired if it has not ended in time."""
        if self.returncode is None:
            # Only this process reaps its children, so the pid is still the child's.
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


def fork_module(
    module: str, arguments: Sequence[str], pass_fds: Sequence[int], log_path: Path | None = None
) -> ForkedModule:
    """Run a module as `python -m module arguments` would. Without a log it writes to this process's output.
    ClusterError if the fork fails."""

    def child() -> NoReturn:
        run_forked(lambda: _main(module, arguments), log_path, pass_fds)

    return ForkedModule(fork(child))


def _main(module: str, arguments: Sequence[str]) -> object:
    sys.argv = [module, *arguments]
    return importlib.import_module(module).main(arguments)
