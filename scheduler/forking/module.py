"""A module's `main`, in a process that is forked from one that has it imported already, instead of executed anew.

Guarantees: the process looks as if it had been executed: session, signals, descriptors, command line. It holds nothing
of its parent but what `keep` names.

Relies on: `scheduler.forking.child` for what makes a fork safe; the parent having the run directory's mark in the
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
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from squall.scheduler.forking.child import fork, run_forked
from squall.scheduler.forking.interpreter import interpreter
from squall.scheduler.forking.process_title import set_title


class ChildProcess(Protocol):
    """A child of this process, forked or executed: as much of `subprocess.Popen` as is needed."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class ForkedModule:
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


def fork_module(
    module: str, arguments: Sequence[str], pass_fds: Sequence[int], log_path: Path | None = None
) -> ForkedModule:
    """Run `python -m module arguments`, as it were. Without a log it writes where this process does. ClusterError if
    the fork fails."""

    def child() -> NoReturn:
        run_forked(lambda: _main(module, arguments), log_path, pass_fds)

    return ForkedModule(fork(child))


def _main(module: str, arguments: Sequence[str]) -> object:
    set_title([*interpreter(module), *arguments])
    sys.argv = [module, *arguments]
    return importlib.import_module(module).main(arguments)
