"""What a worker watches itself for: whether it has lost its right to live, and tasks that do not come back.

The right is that of its topology, of this version of its assignment, and of this incarnation of its slot. A worker
whose topology was removed or has moved, whose slot has a later incarnation, or whose run directory was removed finds
out within a second of its loop's turning, without being told. It then ends without `close` or `cleanup`: the files that
they would write may belong to a successor by now. A worker that waits for its lease to begin never works beside its
successor: if its supervisor died before it heard of the fork, nobody knows it, and the next supervisor starts another
incarnation. A worker whose daemons are all dead keeps its right: it runs on, and the next supervisor adopts it.

The supervisor watches the loop; the loop watches executors that have a thread: being in the same process, it knows the
tuple at hand, can fail exactly its trees and show where the thread is. Code that holds the interpreter's lock stops the
loop too; then the supervisor acts.

Guarantees
    * A task in `open`, `prepare` or `setup` is named on the status board while it is. A worker whose `open` or
      `prepare` does not end never becomes ready; its supervisor ends it, and reads on the board which task it was in.
    * Only time in which the loop turned counts, so a worker that was stopped and continued blames no tuple.

Relies on: Nimbus removing an assignment's board when the assignment ends, and not before; the supervisor writing a
slot's incarnation on the board before it starts that incarnation, and the worker's pid once it has noted it down for a
successor.

Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Callable

from squall.engine.api.async_component import AsyncBolt, AsyncSpout
from squall.engine.core.worker_core import WorkerCore
from squall.engine.errors import ClusterError
from squall.ipc.board import DEAD, SLOT_IDENTITY, STOPPED, Board
from squall.scheduler.common.standstill import ProgressWatch


class Opening:
    """The task that a worker opens."""

    def __init__(self, publish: Callable[[int, int], None], now_ns: Callable[[], int]) -> None:
        """`publish` takes the task, 0 = none, and since when."""
        self._write = publish
        self._published = 0
        self._now_ns = now_ns
        self._tasks: dict[int, AsyncBolt | AsyncSpout] = {}
        self._since_ns: dict[int, int] = {}
        """Tasks in `setup` -> when the first look found them there."""

    def begin(self, task: int) -> None:
        """The loop calls `open` or `prepare` of this task."""
        self._publish(task, self._now_ns())

    def ended(self, core: WorkerCore) -> None:
        """All tasks are open, but those that go on with `setup` in a thread of their own."""
        self._publish(0, 0)
        self._tasks = {task: user for _, task, user in core.users() if isinstance(user, AsyncBolt | AsyncSpout)}

    def look(self) -> None:
        """Find tasks that are in `setup`. Cheap: called several times a second."""
        for task, user in self._tasks.items():
            if user._in_setup is None:
                self._since_ns.pop(task, None)
            else:
                self._since_ns.setdefault(task, self._now_ns())
        longest = min(self._since_ns, key=self._since_ns.__getitem__, default=0)
        self._publish(longest, self._since_ns.get(longest, 0))

    def _publish(self, task: int, since_ns: int) -> None:
        if self._published != task:
            self._published = task
            self._write(task, since_ns)


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


class LeaseEnded(ClusterError):
    """The worker has lost its right to live."""


class Lease:
    """The lease of one incarnation of one worker."""

    def __init__(self, board: Board, slot_index: int, incarnation: int) -> None:
        self._board = board
        self._slot_index = slot_index
        self._incarnation = incarnation

    def has_begun(self, pid: int) -> bool:
        """Whether the supervisor knows the worker of this pid. Raises LeaseEnded."""
        self.check()
        cell = self._board.slot(self._slot_index)
        return (cell.incarnation, cell.pid) == (self._incarnation, pid)

    def check(self) -> None:
        """Raise LeaseEnded if the worker has lost its right. Takes 1.5 µs; called once a second."""
        board = self._board
        if not board.is_there:
            raise LeaseEnded(f"the topology, or this version of it, is no more (its board {board.path} is gone)")
        identity = board.column(SLOT_IDENTITY)[self._slot_index]
        incarnation, state = identity >> 8, identity & 0xFF
        if incarnation > self._incarnation:
            raise LeaseEnded(f"incarnation {incarnation} has taken the place of incarnation {self._incarnation}")
        if incarnation == self._incarnation and state in (DEAD, STOPPED):
            raise LeaseEnded(f"incarnation {incarnation} has been given up for dead")
