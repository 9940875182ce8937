"""The entry point of a worker process: opens a worker, runs its loop, and reports why it ends.

Guarantees: an error that ends it is told to the supervisor first; the exit code says whether it was told to stop.

Relies on: being called in the only thread of a process that was just forked (in a spare, users' modules may have
started others).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

from squall.engine.api.failure import MACHINE, reason_of
from squall.engine.api.topology import Topology
from squall.engine.core.executor import TaskCrashed
from squall.engine.errors import SquallError
from squall.engine.foreign.text import text_of_error, traceback_of
from squall.ipc.control import ControlClient
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import WorkerBoot, WorkerFailed
from squall.scheduler.worker.loop import EXIT_CRASHED, Worker
from squall.scheduler.worker.self_watch import LeaseEnded


def _internal(error: BaseException) -> str:
    """The text of an error that user code did not raise; Squall's own errors need no introduction."""
    if isinstance(error, SquallError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"the worker has no memory left: {text_of_error(error)}"
    if reason_of(error) == MACHINE:
        return f"the machine refuses a worker: {text_of_error(error)}; make room, or raise a limit (ulimit -a)"
    return f"internal error of the worker, a bug in Squall: {text_of_error(error)}"


def _say_why(boot: WorkerBoot, error: BaseException) -> None:
    """Tell the supervisor why there is no worker that could."""
    run_dir = RunDir(boot.run_dir)
    control = ControlClient(run_dir.node_socket(boot.node), run_dir.key(), boot.sender)
    control.send_event(WorkerFailed(boot.port, boot.incarnation, _internal(error), traceback_of(error)))
    control.close()


def worker_main(boot: WorkerBoot, loaded: Topology | None = None) -> int:
    """Entry point after the fork, or of a spare that has `loaded` the topology; the exit code."""
    keep_freed_memory(os.environ)
    try:
        worker = Worker(boot)
    except Exception as error:
        _say_why(boot, error)
        raise
    try:
        worker.open(loaded)
    except TaskCrashed as crash:
        worker.fail(str(crash), crash.traceback_text)
        worker.close()
        return EXIT_CRASHED
    except BaseException as error:
        worker.fail(_internal(error), traceback_of(error))
        worker.close()
        return EXIT_CRASHED
    try:
        worker.run()
        code = worker.close_tasks()
    except TaskCrashed as crash:
        worker.fail(str(crash), crash.traceback_text)
        worker.send_last()
        code = EXIT_CRASHED
    except LeaseEnded as end:
        # Its results are of no use any more, and its files may be a successor's: close no task, write nothing.
        worker.fail(str(end), "")
        code = EXIT_CRASHED
    except BaseException as error:
        worker.fail(_internal(error), traceback_of(error))
        code = EXIT_CRASHED
    worker.close()
    return code


KEPT_BYTES = 64 << 20
"""Free memory at the end of the heap that a worker keeps: as much as an arena holds by default."""
LARGEST_BYTES = 32 << 20
"""Larger values get memory of their own from the kernel: the largest limit that glibc accepts."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")


def keep_freed_memory(environment: Mapping[str, str]) -> bool:
    """Keep freed memory in this process from now on. Return whether that could be set.

    The C library asks the kernel for each value of 128 KiB and more, and gives it back when the value is freed: 256
    page faults for 1 MiB, which take several times as long as copying it. With this, values of up to 32 MiB lie on the
    heap: four times as many of 1 MiB between two workers. What the environment says of `malloc` stays in force.
    """
    if any(name in environment for name in _SETTINGS) or "glibc.malloc" in environment.get("GLIBC_TUNABLES", ""):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    return bool(set_option(_MMAP_THRESHOLD, LARGEST_BYTES) and set_option(_TRIM_THRESHOLD, KEPT_BYTES))
