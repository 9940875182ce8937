"""The entry point of a worker process: opens a worker, runs its loop, and reports why it ends.

Guarantees: an error that ends it is told to the supervisor first; the exit code says whether it was told to stop.

Relies on: being called in the only thread of a process that was just forked.
"""

from __future__ import annotations

import os

from squall.engine.core.executor import TaskCrashed
from squall.engine.errors import SquallError
from squall.engine.foreign.text import text_of_error, traceback_of
from squall.ipc.control import ControlClient
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import WorkerBoot, WorkerFailed
from squall.scheduler.worker.heap import keep_freed_memory
from squall.scheduler.worker.lease import LeaseEnded
from squall.scheduler.worker.loop import EXIT_CRASHED, Worker


def _internal(error: BaseException) -> str:
    """The text of an error that user code did not raise; Squall's own errors need no introduction."""
    if isinstance(error, SquallError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"the worker has no memory left: {text_of_error(error)}"
    return f"internal error of the worker, a bug in Squall: {text_of_error(error)}"


def _say_why(boot: WorkerBoot, error: BaseException) -> None:
    """Tell the supervisor why there is no worker that could."""
    run_dir = RunDir(boot.run_dir)
    control = ControlClient(run_dir.node_socket(boot.node), run_dir.key(), boot.sender)
    control.send_event(WorkerFailed(boot.port, boot.incarnation, _internal(error), traceback_of(error)))
    control.close()


def worker_main(boot: WorkerBoot) -> int:
    """Entry point after the fork; the exit code."""
    keep_freed_memory(os.environ)
    try:
        worker = Worker(boot)
    except Exception as error:
        _say_why(boot, error)
        raise
    try:
        worker.open()
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
