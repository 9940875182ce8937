"""What a child of the forking parent does: it runs a worker's entry point.

Guarantees: as `scheduler.forking.child`; besides, a crash leaves the stacks of all threads in the worker's log, and so
does DUMP_SIGNAL.

Relies on: running in the only thread of a process that was just forked.
"""

from __future__ import annotations

import faulthandler
import importlib
import signal
from typing import NoReturn

from squall.engine.errors import UsageError
from squall.scheduler.common.messages import WorkerBoot
from squall.scheduler.common.python_stacks import DUMP_SIGNAL
from squall.scheduler.forking.child import run_forked


def run_child(boot: WorkerBoot, entry: str) -> NoReturn:
    """Be the worker. Does not return."""
    run_forked(lambda: _run_entry(entry, boot), boot.log_path)


def _run_entry(entry: str, boot: WorkerBoot) -> object:
    # No KeyboardInterrupt in the middle of users' code, that would pass for its own: SIGINT ends a worker as any other
    # signal does. What is raised by that name in a worker was raised by users.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    faulthandler.enable()
    faulthandler.register(DUMP_SIGNAL)
    module, separator, function = entry.partition(":")
    if not separator:
        raise UsageError(f"entry point {entry!r} is not of the form module:function")
    return getattr(importlib.import_module(module), function)(boot)
