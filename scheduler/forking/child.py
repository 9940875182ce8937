"""Forks, and runs the first and last steps of the child, so that it looks like a process that was just executed.

Guarantees
    * Only a process with one thread forks, so no lock of the child is held by a thread that it does not have.
    * The child has its own session and process group, default signals, an empty signal mask, no descriptors but
      `pass_fds`, its log (else its parent's output) as stdout and stderr, and /dev/null as stdin.
    * However its work ends, the child ends here, with os._exit: the parent's stack and exit handlers do not run in it.

Relies on: the parent never having had a ZeroMQ context, which does not survive a fork.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection
from typing import NoReturn

from squall.engine.errors import ClusterError
from squall.engine.foreign.plain_text import plain, plain_lines
from squall.ipc.private import make_levels
from squall.scheduler.common import process
from squall.scheduler.common.log_output import ROTATE_BYTES, log_output

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
    work: Callable[[], object], log_path: str | os.PathLike[str] | None, pass_fds: Collection[int] = (),
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


def _redirect_output(log_path: str | os.PathLike[str], rotate_bytes: int) -> None:
    try:
        make_levels(os.path.dirname(log_path), 1)
        log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        # A full disk must not stop a worker: it writes to its parent's output instead.
        sys.stderr.write(f"cannot open log {plain(log_path)}: {error.strerror}\n")
        return
    os.dup2(log, 1)
    os.dup2(log, 2)
    log_output(log_path, rotate_bytes)


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
