"""Runs a worker's entry point in a child of the forking parent.

Guarantees: as `scheduler.forking.child`; and a crash, as DUMP_SIGNAL does, writes the stacks of all threads to the
worker's log.

Relies on: running in the only thread of a process that was just forked.
"""

from __future__ import annotations

import faulthandler
import importlib
import signal
from typing import NoReturn

from squall.engine.errors import UsageError
from squall.scheduler.common.log_output import ROTATE_BYTES
from squall.scheduler.common.messages import WorkerBoot
from squall.scheduler.common.process_title import Kind, Role, show_role
from squall.scheduler.common.python_stacks import DUMP_SIGNAL
from squall.scheduler.forking.child import run_forked


def run_child(boot: WorkerBoot, entry: str) -> NoReturn:
    """Be the worker. Does not return."""
    rotate_bytes = boot.topology.conf.get("log_rotate_bytes", ROTATE_BYTES)
    run_forked(lambda: _run_entry(entry, boot), boot.log_path, rotate_bytes=rotate_bytes)


def _run_entry(entry: str, boot: WorkerBoot) -> object:
    show_role(Role(Kind.WORKER, f"{boot.node}:{boot.port}", boot.topology.name))
    # SIGINT ends a worker as any other signal does. So a KeyboardInterrupt in a worker was raised by users' code.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    faulthandler.enable()
    faulthandler.register(DUMP_SIGNAL)
    module, separator, function = entry.partition(":")
    if not separator:
        raise UsageError(f"entry point {entry!r} is not of the form module:function")
    return getattr(importlib.import_module(module), function)(boot)
