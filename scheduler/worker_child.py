"""The first steps of a forked child, from the fork to its entry point and out again.

Guarantees
    * The entry point runs in a process that looks fresh: own session and process group, default signals, an empty
      mask, no descriptor but its log as stdout and stderr and /dev/null as stdin.
    * However the entry point ends, the process ends here, with os._exit: nothing of the parent's stack, exit handlers
      or locks runs in the child.

Relies on: running in the only thread of a process that was just forked.
"""

from __future__ import annotations

import faulthandler
import importlib
import io
import os
import signal
import sys
import traceback
from typing import NoReturn

from engine.errors import UsageError
from scheduler.messages import WorkerBoot
from scheduler.python_stacks import DUMP_SIGNAL

EXIT_EXCEPTION = 1


def run_child(boot: WorkerBoot, entry: str) -> NoReturn:
    """Be the worker. Does not return."""
    code = EXIT_EXCEPTION
    try:
        os.setsid()
        _redirect_standard_streams(boot.log_path)
        _close_inherited_descriptors()
        _reset_signals()
        faulthandler.enable()
        faulthandler.register(DUMP_SIGNAL)
        code = _run_entry(entry, boot)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _run_entry(entry: str, boot: WorkerBoot) -> int:
    module, separator, function = entry.partition(":")
    if not separator:
        raise UsageError(f"entry point {entry!r} is not of the form module:function")
    try:
        code = getattr(importlib.import_module(module), function)(boot)
    except SystemExit as end:
        code = end.code
        if code is not None and not isinstance(code, int):
            sys.stderr.write(f"{code}\n")
            return EXIT_EXCEPTION
    return int(code or 0) & 0xFF


def _redirect_standard_streams(log_path: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    try:
        os.makedirs(os.path.dirname(log_path), mode=0o700, exist_ok=True)
        log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        # A full disk must not keep a worker from running: it writes where its forking parent writes.
        sys.stderr.write(f"cannot open log {log_path}: {error.strerror}\n")
        return
    os.dup2(log, 1)
    os.dup2(log, 2)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A log that is read while the worker runs, and after it was killed, must hold whole lines.
        sys.stdout.reconfigure(line_buffering=True)


def _close_inherited_descriptors() -> None:
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    os.closerange(3, highest + 1)


def _reset_signals() -> None:
    """As a fresh interpreter has them. The mask comes last: what is pending arrives under the new settings."""
    signal.set_wakeup_fd(-1)
    for signum in signal.valid_signals():
        if callable(signal.getsignal(signum)):
            signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
