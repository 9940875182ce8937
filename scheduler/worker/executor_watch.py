"""Watches the executors of a worker that have a thread of their own: one that hangs ends the worker.

The supervisor watches the loop; the loop watches these threads: being in the same process, it knows the tuple at hand,
can fail exactly its trees and show where the thread is. Code that holds the interpreter's lock stops the loop too; then
the supervisor acts.

Guarantees: only time in which the loop turned counts, so a worker that was stopped and continued blames no tuple.

Thread: the worker's loop.
"""

from __future__ import annotations

from squall.engine.core.worker_core import WorkerCore
from squall.scheduler.common.progress_watch import ProgressWatch

LONGEST_GAP_SECS = 1.0
"""Longest time between two looks of a loop that is not stopped: an idle one looks five times a second."""


class ExecutorWatch:
    """Looks with every publication: two comparisons for each blocking executor that has a limit."""

    def __init__(self, core: WorkerCore) -> None:
        self._outbox = core.outbox
        self._runners = [
            (number, runner, runner.execute_timeout_secs)
            for number, runner in enumerate(core.blocking)
            if runner.execute_timeout_secs is not None
        ]
        self._progress = ProgressWatch(LONGEST_GAP_SECS)

    def look(self, now: float) -> None:
        """Raise TaskHung, after failing its trees, if a tuple takes longer than its component allows."""
        for number, runner, limit_secs in self._runners:
            at_hand = runner.at_hand
            if not at_hand:
                self._progress.forget(number)
                continue
            secs = self._progress.still_secs(number, at_hand, now)
            if secs > limit_secs:
                hung = runner.give_up(round(secs, 1), self._outbox)
                if hung is not None:
                    raise hung
