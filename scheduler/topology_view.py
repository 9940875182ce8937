"""A topology as its status board shows it: counts, what is pending, whether anything is under way.

Guarantees: looking costs the workers nothing. What is said to be at rest was so at one moment: one look at shared
memory is not one moment, so two looks must agree that every worker was quiet and none took a turn in between.

Relies on: workers publishing counters and link positions before they publish that they are quiet (`WorkerBoard`).

Any process; the caller owns the board.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.report import TaskReading
from ipc.board import READY, SLOT_ACTIVE, SLOT_HEARTBEAT_NS, SLOT_PROGRESS, SLOT_QUIET, Board
from scheduler.messages import Assignment, TopologyRecord


class TopologyView:
    """One assignment of a topology and its board."""

    def __init__(self, board: Board, assignment: Assignment, record: TopologyRecord) -> None:
        self.board = board
        self.assignment = assignment
        self._kinds: Mapping[str, str] = {component.id: component.kind for component in record.components}
        self._tasks = sorted(
            (task, executor.component, str(slot))
            for slot, executors in zip(assignment.workers, assignment.executors, strict=True)
            for executor in executors
            for task in range(executor.first_task, executor.last_task + 1)
        )
        self._spout_tasks = [task for task, component, _ in self._tasks if self._kinds[component] == "spout"]

    def readings(self) -> list[TaskReading]:
        """Counters of every task now, but the ackers'."""
        return [
            TaskReading(
                task, component, self._kinds[component], worker,
                self.board.task_counters(task), self.board.task_histogram(task),
            )
            for task, component, worker in self._tasks
            if self._kinds[component] != "acker"
        ]

    def pending(self) -> int:
        """Messages that spouts have emitted and that are neither acked nor failed. What was last said by dead ones."""
        return sum(self.board.task_counters(task)["pending"] for task in self._spout_tasks)

    def all_ready(self) -> bool:
        """Whether every worker has opened its tasks."""
        return all(self.board.slot(slot).state == READY for slot in range(self.board.n_slots))

    def is_heard_of(self, slot: int, now: float, within_secs: float) -> bool:
        """Whether a worker has published anything lately. `now`: seconds on the monotonic clock."""
        heartbeat_secs = self.board.words[self.board.slot_at(slot) + SLOT_HEARTBEAT_NS] / 1e9
        # A heartbeat from the future was written before the machine was started anew.
        return heartbeat_secs <= now + 1.0 and now - heartbeat_secs < within_secs

    def is_drained(self) -> bool:
        """Every spout is exhausted, nothing is pending and nothing under way."""
        return self._twice(must_rest=False)

    def is_at_rest(self) -> bool:
        """Every spout was told to stop, nothing is pending and nothing under way."""
        return self._twice(must_rest=True)

    def _twice(self, must_rest: bool) -> bool:
        first = self._stillness(must_rest)
        return first is not None and first == self._stillness(must_rest)

    def _stillness(self, must_rest: bool) -> list[int] | None:
        """Identity and progress of every worker if all is quiet now, else None."""
        board, words = self.board, self.board.words
        seen = []
        for slot in range(board.n_slots):
            at = board.slot_at(slot)
            if board.slot(slot).state != READY or not words[at + SLOT_QUIET]:
                return None
            if must_rest and words[at + SLOT_ACTIVE]:
                return None
            seen += [board.identity(slot), words[at + SLOT_PROGRESS]]
        for sender in range(board.n_slots):
            for receiver in range(board.n_slots):
                at = board.link_at(sender, receiver)
                if words[at] != words[at + 1]:
                    return None
        for task in self._spout_tasks:
            counters = board.task_counters(task)
            if counters["pending"] or not (must_rest or counters["exhausted"]):
                return None
        return seen
