"""A topology as its status board shows it: counts, what is pending, whether anything is under way.

Guarantees: looking costs the workers nothing. A topology that is called at rest, drained or idle was so at one moment:
one look at shared memory takes time, so two looks must agree that all workers were quiet and none acted between them. A
tick that leads to nothing is no act (`Turn.acted`): windows tick 20 times a second, and on a busy machine the next tick
may be due before a worker has published that it is done with one.

Relies on: workers publishing counters and link positions before they publish that they are quiet (`WorkerBoard`).

Process: any; the caller owns the board.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from squall.engine.report.metrics import Unfinished
from squall.engine.report.run_report import FLOW_COUNTERS, TaskReading, unfinished
from squall.ipc.ack_rings import untaken
from squall.ipc.board import (
    DEAD,
    READY,
    SLOT_ACTIVE,
    SLOT_HEARTBEAT_NS,
    SLOT_IDENTITY,
    SLOT_PROGRESS,
    SLOT_QUIET,
    SLOT_VERDICT,
    SLOT_WORKING_NS,
    STARTING,
    STOPPED,
    Board,
)
from squall.scheduler.common.messages import Assignment, TopologyRecord


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
            for task in executor.tasks
        )
        self.component_of: Mapping[int, str] = {task: component for task, component, _ in self._tasks}
        """The component of each task."""
        self._spout_tasks = [task for task, component, _ in self._tasks if self._kinds[component] == "spout"]

    def readings(self) -> list[TaskReading]:
        """Present counters of every task except ackers."""
        alive, flow = self._alive(), self.board.all_untracked()
        sent, dropped = FLOW_COUNTERS
        readings = []
        for task, component, worker in self._tasks:
            if (kind := self._kinds[component]) == "acker":
                continue
            counters = self.board.task_counters(task)
            counters[sent], counters[dropped] = flow[2 * task - 2 : 2 * task]
            histogram = self.board.task_histogram(task) if kind == "spout" else []
            readings.append(TaskReading(task, component, kind, worker, counters, histogram, alive[worker]))
        return readings

    def _alive(self) -> dict[str, bool]:
        """Worker -> whether its last word still holds: it lives, or has ended in order."""
        slots = enumerate(map(str, self.assignment.workers))
        return {worker: self.board.slot(index).state != DEAD for index, worker in slots}

    def unfinished(self) -> Unfinished:
        """Messages under way, messages that spouts hold for a retry, and tuples without a tree that were not executed;
        those of dead workers count too."""
        return unfinished(self.readings())

    def spout_total(self, counter: str) -> int:
        """One counter of `engine.report.metrics.TASK_COUNTERS`, over all tasks of spouts."""
        return sum(self.board.task_counters(task)[counter] for task in self._spout_tasks)

    def deaths_in_a_row(self) -> tuple[int, bool]:
        """Deaths without progress between them, and whether that is hopeless: the worst verdict of its supervisors."""
        verdicts = self.board.column(SLOT_VERDICT).tolist()
        return max(verdict >> 1 for verdict in verdicts), any(verdict & 1 for verdict in verdicts)

    def all_ready(self) -> bool:
        """Whether every worker has opened its tasks."""
        return all(self.board.slot(slot).state == READY for slot in range(self.board.n_slots))

    def working_secs(self, worker: str, incarnation: int) -> float | None:
        """When an incarnation of a worker first worked, in seconds of the monotonic clock; None if unknown."""
        for index, slot in enumerate(self.assignment.workers):
            cell = self.board.slot(index)
            # Before it is ready, the word may be its predecessor's.
            if str(slot) == worker and cell.incarnation == incarnation and cell.state in (READY, STOPPED):
                return self.board.column(SLOT_WORKING_NS)[index] / 1e9 or None
        return None

    def opening(self, slot: int, now_ns: int) -> tuple[str, int, str, float] | None:
        """The task that a worker is opening: component, task, the method that it is in, and for how many seconds; None
        if there is none."""
        cell = self.board.slot(slot)
        task, since_ns = self.board.opening(slot, cell.incarnation)
        if cell.state not in (STARTING, READY) or task not in self.component_of:
            return None
        component = self.component_of[task]
        before = "open" if self._kinds[component] == "spout" else "prepare"
        return component, task, "setup" if cell.state == READY else before, max(0, now_ns - since_ns) / 1e9

    def is_heard_of(self, slot: int, now: float, within_secs: float) -> bool:
        """Whether a worker has published anything lately. `now`: seconds on the monotonic clock."""
        heartbeat_secs = self.board.column(SLOT_HEARTBEAT_NS)[slot] / 1e9
        # A heartbeat in the future is of before a reboot.
        return heartbeat_secs <= now + 1.0 and now - heartbeat_secs < within_secs

    def is_drained(self) -> bool:
        """Every spout is exhausted, nothing is pending and nothing under way."""
        return self._twice(lambda: self._at_work() or self._spouts_at_work(exhausted=True))

    def has_finished(self) -> bool:
        """Whether the counts, which outlive the workers, say that every message of exhausted spouts was answered."""
        left = self.unfinished()
        exhausted = all(self.board.task_counters(task)["exhausted"] for task in self._spout_tasks)
        return exhausted and not left and not left.waiting

    def undrained(self) -> str:
        """Why it is not drained, for people; "" if nothing stands against it at the moment."""
        now_ns = time.monotonic_ns()
        opening = filter(None, (self.opening(slot, now_ns) for slot in range(self.board.n_slots)))
        found = [f"{component}[{task}] is still in {method}" for component, task, method, _ in opening]
        found += [f"{self.assignment.workers[slot]} is at work" for slot in self._slots_at_work()]
        found += ["frames or acks are under way"] if self._under_way() else []
        if any(not self.board.task_counters(task)["exhausted"] for task in self._spout_tasks):
            found.append("not every spout is exhausted")
        return "; ".join(found)

    def is_at_rest(self) -> bool:
        """Every spout was told to stop, nothing is pending and nothing under way."""
        return self._twice(lambda: self._at_work() or self._active() or self._spouts_at_work(exhausted=False))

    def is_idle(self) -> bool:
        """Nothing is under way now; spouts may have more to emit, messages may be pending."""
        return self._twice(self._at_work)

    def readings_and_idle(self) -> tuple[list[TaskReading], bool]:
        """`readings()`, and whether nothing was under way before, after and meanwhile."""
        at_work, before = self._at_work(), self._progress()
        readings = self.readings()
        return readings, not (at_work or self._at_work()) and before == self._progress()

    def _twice(self, is_at_work: Callable[[], bool]) -> bool:
        """Whether nothing was at work at two looks, and no worker acted or was replaced between them."""
        if is_at_work():
            return False
        first = self._progress()
        return not is_at_work() and first == self._progress()

    def _progress(self) -> list[int]:
        """Identity and progress of every worker."""
        return [*self.board.column(SLOT_IDENTITY), *self.board.column(SLOT_PROGRESS)]

    def _at_work(self) -> bool:
        """Whether anything is under way in or between workers."""
        return bool(self._slots_at_work()) or self._under_way()

    def _slots_at_work(self) -> list[int]:
        """Workers that are not ready, or have not published that they are quiet."""
        quiet = self.board.column(SLOT_QUIET)
        return [slot for slot in range(self.board.n_slots) if self.board.slot(slot).state != READY or not quiet[slot]]

    def _under_way(self) -> bool:
        """Whether a link has frames, or a ring acks, that were sent and are not taken."""
        words, slots = self.board.words, range(self.board.n_slots)
        links = (self.board.link_at(sender, receiver) for sender in slots for receiver in slots)
        return any(words[at] != words[at + 1] for at in links) or bool(untaken(self.board.rings, self.board.n_slots))

    def _active(self) -> bool:
        """Whether any worker's spouts may emit."""
        return any(self.board.column(SLOT_ACTIVE))

    def _spouts_at_work(self, exhausted: bool) -> bool:
        """Whether any spout has messages pending, or, if `exhausted` is asked for, more to emit."""
        counters = (self.board.task_counters(task) for task in self._spout_tasks)
        return any(each["pending"] or (exhausted and not each["exhausted"]) for each in counters)
