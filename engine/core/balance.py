"""Keeps shuffles from sending tuples where they would wait: estimates waits here, and hands out shares by all waits.

The wait for a bolt task of the loop is the time that the loop's queues take, and a turn as it was of late: a worker in
which anything else takes long, such as the bolt of a frequent key, is chosen seldom as well. Its own queue counts
twice: of two tasks of one loop, the one with the shorter queue adds less. A task with a thread of its own has only its
queue.

Guarantees: tasks with even waits get even shares, and no task is left out for good: one that nothing is sent to has no
queue soon, and gets its turns again.

Decides only. Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from squall.engine.api.plan import Plan
from squall.engine.api.topology import LOCAL_OR_SHUFFLE, SHUFFLE, Topology
from squall.engine.core.executor import BoltTask
from squall.engine.flow.emitter import Emitter
from squall.engine.flow.shuffle_rounds import Shares, shares_of


class Balance:
    """The waits and the shuffles of one worker."""

    def __init__(
        self, topology: Topology, plan: Plan, me: int, tasks: Mapping[int, BoltTask],
        emitters: Mapping[int, Emitter],
    ) -> None:
        """`tasks`: of the bolts here."""
        self._tasks = tasks
        self._emitters = emitters
        self._turn_ns = 0
        self._chosen = [
            task for spec in topology.components.values() if spec.tasks > 1
            if any(subscription.grouping in (SHUFFLE, LOCAL_OR_SHUFFLE) for subscription in spec.subscriptions)
            for task in plan.tasks_of(spec.id, me)
        ]

    def turn_took(self, took_ns: int) -> None:
        """Note the length of a turn."""
        self._turn_ns = (self._turn_ns + took_ns) // 2

    def waits_ns(self) -> dict[int, int]:
        """About how long a tuple would wait for each bolt task here that a shuffle chooses among others."""
        if not self._chosen:
            return {}
        loop_ns, own_ns = self._turn_ns, {}
        for task in self._tasks.values():
            waiting = task.in_queue
            if waiting > 0:
                own_ns[task.task] = max(0, waiting - task.at_once) * task.row_ns // max(1, task.at_once)
                if not task.at_once:
                    loop_ns += own_ns[task.task]
        return {
            task: own_ns.get(task, 0) + (0 if self._tasks[task].at_once else loop_ns) for task in self._chosen
        }

    @property
    def shuffles(self) -> bool:
        """True if a task here chooses among several by a shuffle."""
        return any(emitter.rounds for emitter in self._emitters.values())

    def follow(self, waits_ns: Callable[[int], int]) -> None:
        """Have the shuffles here prefer tasks that would not keep a tuple waiting. `waits_ns(task)`: of any task."""
        # By identity: all senders to a component share the sequence of its tasks.
        shares: dict[int, Shares | None] = {}
        for emitter in self._emitters.values():
            for rounds in emitter.rounds:
                targets = rounds.targets
                if id(targets) not in shares:
                    shares[id(targets)] = shares_of([waits_ns(target) for target in targets])
                rounds.balance(shares[id(targets)])
