"""The entry point of a worker process: opens a worker, lets it turn, and has it say what it died of.

Guarantees: whatever ends it, the supervisor is told first, and the exit code says whether it was told to stop.

Relies on: being called in the only thread of a process that was just forked.
"""

from __future__ import annotations

import traceback

from engine.errors import SquallError
from engine.executor import TaskCrashed, describe
from scheduler.messages import WorkerBoot
from scheduler.worker import EXIT_CRASHED, Worker


def _internal(error: Exception) -> str:
    """What to say of an error that is not the user code's: Squall's own errors speak for themselves."""
    if isinstance(error, SquallError):
        return str(error)
    return f"internal error of the worker, a bug in Squall: {describe(error)}"


def worker_main(boot: WorkerBoot) -> int:
    """Entry point after the fork; the exit code."""
    worker = Worker(boot)
    try:
        worker.open()
    except TaskCrashed as crash:
        worker.fail(crash.component, crash.task, str(crash), crash.traceback_text)
        worker.close()
        return EXIT_CRASHED
    except Exception as error:
        worker.fail("", 0, _internal(error), traceback.format_exc())
        worker.close()
        return EXIT_CRASHED
    try:
        worker.run()
        code = worker.close_tasks()
    except TaskCrashed as crash:
        worker.fail(crash.component, crash.task, str(crash), crash.traceback_text)
        worker.send_last()
        code = EXIT_CRASHED
    except Exception as error:
        worker.fail("", 0, _internal(error), traceback.format_exc())
        code = EXIT_CRASHED
    worker.close()
    return code
