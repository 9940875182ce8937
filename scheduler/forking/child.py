"""Forks, and runs the first and last steps of the child, so that it looks like a process that was just executed.

`fork_module` runs a module's `main` in such a child, as `python -m` would, without another interpreter's start and
imports, which dominate the time of a cluster's start.

Guarantees
    * Only a process with one thread forks, so no lock of the child is held by a thread that it does not have.
    * The child has its own session and process group, default signals, an empty signal mask, no descriptors but
      `pass_fds`, its log (else its parent's output) as stdout and stderr, and /dev/null as stdin.
    * However its work ends, the child ends here, with os._exit: the parent's stack and exit handlers do not run in it.

Relies on: the parent never having had a ZeroMQ context, which does not survive a fork; the parent having the run
directory's mark in the environment it was executed with; a module's `main` saying what the process is (`show_role`).
"""

from __future__ import annotations

import importlib
import math
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NoReturn

from squall.engine.errors import ClusterError
from squall.engine.foreign.text import plain, plain_lines
from squall.ipc.private import make_levels
from squall.scheduler.common import process
from squall.scheduler.common.logs import ROTATE_BYTES, log_output

EXIT_EXCEPTION = 1


def fork(child: Callable[[], NoReturn]) -> int:
    """Pid of a new process that runs `child`. ClusterError if the fork fails. Thread: the process's only one."""
    threads = process.thread_count()
    if threads != 1:
        raise ClusterError(f"process {os.getpid()} forks, so it must have 1 thread, not {threads}: who starts them?")
    # Block signals: one between the fork and the child's own settings would run the parent's handler.
    blocked_before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            child()
    except OSError as error:
        raise ClusterError(f"cannot fork: {error.strerror}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked_before)
    return pid


def run_forked(
    work: Callable[[], object], log_path: str | Path | None, pass_fds: Collection[int] = (),
    rotate_bytes: int = ROTATE_BYTES,
) -> NoReturn:
    """Be the child: run `work`, which returns its exit code (None: 0) or raises. Called right after the fork."""
    code = EXIT_EXCEPTION
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if log_path is not None:
            _redirect_output(log_path, rotate_bytes)
        _close_inherited_descriptors(pass_fds)
        _reset_signals()
        code = _exit_code(work)
    except BaseException:
        sys.stderr.write(plain_lines(traceback.format_exc()))
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _exit_code(work: Callable[[], object]) -> int:
    """The exit code that the interpreter derives from an argument of `sys.exit`."""
    try:
        code = work()
    except SystemExit as end:
        code = end.code
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    sys.stderr.write(f"{plain(code)}\n")
    return EXIT_EXCEPTION


def _redirect_output(log_path: str | Path, rotate_bytes: int) -> None:
    log = open_log(log_path)
    if log is not None:
        output_to(log)
        log_output(log_path, rotate_bytes)


def open_log(log_path: str | Path) -> int | None:
    """Descriptor of a log; None if there is no room for it, say: that must not stop a worker, which writes to its
    parent's output instead."""
    try:
        make_levels(os.path.dirname(log_path), 1)
        return os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        sys.stderr.write(f"cannot open log {plain(log_path)}: {error.strerror}\n")
        return None


def output_to(fd: int) -> None:
    """Make a descriptor this process's stdout and stderr, and close it."""
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


def _close_inherited_descriptors(pass_fds: Collection[int]) -> None:
    for fd in sorted(int(name) for name in os.listdir("/proc/self/fd")):
        if fd > 2 and fd not in pass_fds:
            # Close ranges, because the listing had a descriptor of its own, which is closed already.
            os.closerange(fd, fd + 1)


def _reset_signals() -> None:
    """Set signals as a fresh interpreter has them. Unblock last: pending ones then meet the new settings."""
    signal.set_wakeup_fd(-1)
    for signum in signal.valid_signals():
        if callable(signal.getsignal(signum)):
            signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


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
