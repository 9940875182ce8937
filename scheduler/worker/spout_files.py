"""Keeps a worker's files for its spouts: attempts, failures, dead letters.

Guarantees: those of the three modules that it brings together. Unused files cost nothing: none is made before it has
content, but for one journal per spout task.

Thread: the worker's loop.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from squall.engine.api.failure import Failure
from squall.engine.api.plan import Plan
from squall.engine.api.stream import declared
from squall.engine.api.topology import Topology
from squall.engine.core.worker_core import WorkerCore
from squall.engine.foreign.text import plain, repr_of
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import WorkerBoot
from squall.scheduler.records.attempt_journal import AttemptJournal
from squall.scheduler.records.dead_letters import SHOWN_CHARACTERS, DeadLetters, taker
from squall.scheduler.records.failure_file import FailureFile

_REQUESTS_PAUSE_NS = 500_000_000
"""Between two looks for dead letters to retry: an operator asks for them, and does not notice half a second."""


class WorkerFiles:
    """The files of one worker."""

    def __init__(
        self, run_dir: RunDir, boot: WorkerBoot, plan: Plan, report: Callable[[str, int, str], None], explanation: str
    ) -> None:
        """`explanation`: what is known of the end of the incarnation before."""
        self._run_dir = run_dir
        self._topology_id = boot.topology.id
        self._topology_name = boot.topology.name
        self._plan = plan
        self._report = report
        self._explanation = explanation
        self._letters = DeadLetters(run_dir.topology_state(boot.topology.name))
        self._failures = FailureFile(run_dir, boot.topology.id, boot.slot_index)
        self.note_failures = self._failures.log.note
        """Notes that trees of a spout here have failed together."""
        spouts = [component for component in boot.topology.components if component.kind == "spout"]
        self._takers = {taker(spout.id, index) for spout in spouts for index in range(spout.tasks)}
        self._first_spout_task = min((task for spout in spouts for task in plan.tasks_of(spout.id)), default=0)
        self._taken: dict[int, set[str]] = {}
        self._requests_at_ns = 0

    def journal(self, component: str, index: int) -> AttemptJournal:
        """The file in which the attempts of one spout task outlive the worker."""
        path = self._run_dir.attempts(self._topology_name, component, index)
        task = self._plan.tasks_of(component)[index]
        return AttemptJournal(
            path, self._topology_id, lambda text: self._report(component, task, text), self._explanation
        )

    def dead_letter(
        self, topology: Topology, component: str, task: int, message_id: Any, values: Any, failure: Failure
    ) -> None:
        """Write down a message that a spout here has given up."""
        row = repr_of(declared(topology[component].outputs, values), SHOWN_CHARACTERS)
        self._letters.add(component, self._plan.task_index[task], message_id, values, failure, row)

    def tick(self, core: WorkerCore) -> None:
        """Write new failures, and now and then look for dead letters to retry."""
        now_ns = time.monotonic_ns()
        self._publish(now_ns)
        if now_ns >= self._requests_at_ns:
            self._requests_at_ns = now_ns + _REQUESTS_PAUSE_NS
            self.take_requests(core)

    def take_requests(self, core: WorkerCore) -> None:
        """Give dead letters that an operator retries back to their spouts."""
        asked = self._letters.asked()
        if not asked:
            return
        for task, spout in core.spout_tasks.items():
            if task == self._first_spout_task:
                self._letters.refuse_strangers(self._takers, partial(self._report, spout.component, task))
            index, refuse = self._plan.task_index[task], partial(self._report, spout.component, task)
            if taker(spout.component, index) not in asked:
                continue
            taken = self._taken.setdefault(task, set())
            for name, letter in self._letters.take(spout.component, index, taken, refuse):
                taken.add(name)
                spout.give_back(letter)

    def flush(self) -> None:
        """Write all unwritten failures."""
        self._publish(time.monotonic_ns(), at_once=True)

    def _publish(self, now_ns: int, at_once: bool = False) -> None:
        try:
            self._failures.publish(now_ns, at_once)
        except OSError as error:
            # A full disk must not end a worker.
            sys.stderr.write(f"the list of failures cannot be written: {plain(error)}\n")

