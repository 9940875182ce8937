"""A submitted topology, seen from the client: waiting, statistics, commands.

Guarantees: counts are read from the shared status board, so asking costs the workers nothing. `wait_until_drained`
returns only when every spout is exhausted, nothing is pending, and no tuple is under way in or between workers; it
raises with the workers' own error when the topology cannot make progress.

Any process of the cluster's owner; one thread per Job.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import ClusterError
from engine.report import Restart, RunReport, TaskReading, build_report
from ipc.board import LINK_COUNTERS, READY, SLOT_PROGRESS, SLOT_QUIET, Board
from ipc.rundir import RunDir
from scheduler.failure_file import read_failures
from scheduler.messages import Assignment, TopologyRecord, TopologyState
from scheduler.worker import plan_of

if TYPE_CHECKING:
    from scheduler.client import NimbusClient

_POLL_SECS, _POLL_MAX_SECS = 0.002, 0.02
"""How often the board is looked at: a look with the logs costs some 0.2 ms. Short runs are seen to end at once, long
ones a fiftieth of a second late."""
_POLL_GROWTH = 1.05
_NIMBUS_POLL_SECS = 0.25
_STOP_GRACE_SECS = 10.0
"""How long a worker may take to close its tasks: the supervisor kills it after half of that."""
_HOPELESS_ERRORS = 5
"""So many deaths by an error of user code in a row, with no message answered or charged with one between them, and the
run is given up."""
_HOPELESS_DEATHS = 20
"""The same for deaths without a word (a signal, an exit): whoever kills workers on purpose may do so for a while."""


class Job:
    """One topology on a cluster."""

    def __init__(self, client: NimbusClient, record: TopologyRecord, board_path: str) -> None:
        self._client = client
        self.name = record.name
        self.id = record.id
        self.record = record
        self._board_path = board_path
        self._board: Board | None = None
        self._assignment: Assignment | None = None
        self._started = time.monotonic()
        self._deaths_seen = 0
        self._deaths_without_progress = 0
        self._errors_without_progress = 0
        self._progress_at_death = 0
        self._nimbus_asked = 0.0
        self._last_state: TopologyState | None = None
        self.ended: float | None = None
        self.removed = False

    # ---- state ----

    def state(self) -> TopologyState:
        """What Nimbus knows, or knew when the topology was removed. Raises ClusterError if Nimbus does not answer."""
        if self.removed and self._last_state is not None:
            return self._last_state
        return self._client.get_topology(self.name)

    def _view(self) -> tuple[Board, Assignment] | None:
        """Board and assignment, once the topology has been placed."""
        if self._assignment is None:
            self._assignment = self.state().assignment
        if self._assignment is None:
            return None
        if self._board is None:
            self._board = Board.attach(self._board_path)
        return self._board, self._assignment

    def readings(self) -> list[TaskReading]:
        """Counters of every task now; empty while the topology waits for a slot."""
        view = self._view()
        if view is None:
            return []
        board, assignment = view
        kinds = {component.id: component.kind for component in self.record.components}
        plan = plan_of(assignment)
        return [
            TaskReading(
                task, component, kinds[component], plan.worker_names[plan.task_worker[task]],
                board.task_counters(task), board.task_histogram(task),
            )
            for task, component in sorted(plan.task_component.items())
            if kinds[component] != "acker"
        ]

    def stats(self) -> RunReport:
        """The report as of now."""
        until = self.ended if self.ended is not None else time.monotonic()
        restarts = [
            Restart(r.slot, r.reason, round(r.at_monotonic_secs - self._started, 6), r.ready_after_secs, r.error)
            for r in self.state().restarts
        ]
        run_dir = RunDir(Path(self._board_path).parents[1])
        return build_report(
            self.name, self.readings(), until - self._started, restarts, self.ended is not None,
            read_failures(run_dir, self.id, self._started), self._links(),
        )

    def _links(self) -> dict[str, int]:
        view = self._view()
        counts = [view[0].link_counts(slot) for slot in range(view[0].n_slots)] if view is not None else []
        return {name: sum(count[name] for count in counts) for name in LINK_COUNTERS}

    def wait_until_ready(self, timeout: float) -> None:
        """Wait until every worker has opened its tasks. ClusterError when `timeout` seconds pass first."""
        deadline = time.monotonic() + timeout
        while not self._all_ready():
            self._give_up_if_hopeless()
            if time.monotonic() >= deadline:
                raise ClusterError(f"the workers of topology {self.name!r} were not ready within {timeout:g} s")
            time.sleep(_POLL_SECS)

    def _all_ready(self) -> bool:
        view = self._view()
        return view is not None and all(view[0].slot(slot).state == READY for slot in range(view[0].n_slots))

    # ---- draining ----

    def is_drained(self) -> bool:
        """Nothing is left to do: see `wait_until_drained`. Looks twice, because one look is not one moment."""
        first = self._quiet()
        return first is not None and first == self._quiet()

    def _quiet(self) -> list[int] | None:
        """Identity and progress of every worker if all is quiet now, else None."""
        view = self._view()
        if view is None:
            return None
        board, assignment = view
        words = board.words
        seen = []
        for slot in range(len(assignment.workers)):
            at = board.slot_at(slot)
            if board.slot(slot).state != READY or not words[at + SLOT_QUIET]:
                return None
            seen += [board.identity(slot), words[at + SLOT_PROGRESS]]
        for sender in range(board.n_slots):
            for receiver in range(board.n_slots):
                at = board.link_at(sender, receiver)
                if words[at] != words[at + 1]:
                    return None
        return seen if self._spouts_done(board, assignment) else None

    def _spouts_done(self, board: Board, assignment: Assignment) -> bool:
        spouts = {component.id for component in self.record.components if component.kind == "spout"}
        for worker in assignment.executors:
            for executor in worker:
                if executor.component in spouts:
                    for task in range(executor.first_task, executor.last_task + 1):
                        counters = board.task_counters(task)
                        if counters["pending"] or not counters["exhausted"]:
                            return False
        return True

    def wait_until_drained(
        self, timeout: float | None = None, on_wait: Callable[[], bool | None] | None = None
    ) -> RunReport:
        """Wait until all spouts are exhausted and nothing is pending; the report.

        `on_wait` is called between looks; when it returns True the wait ends early. Raises ClusterError when `timeout`
        seconds pass first, or when the topology keeps dying without progress.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause_secs = _POLL_SECS
        while not self.is_drained():
            if on_wait is not None and on_wait():
                return self.stats()
            self._give_up_if_hopeless()
            if deadline is not None and time.monotonic() >= deadline:
                stats = self.stats()
                raise ClusterError(
                    f"topology {self.name!r} was not drained within {timeout:g} s: {stats.pending} messages pending, "
                    f"{stats.acked} acked of {stats.emitted} emitted"
                )
            time.sleep(pause_secs)
            pause_secs = min(_POLL_MAX_SECS, pause_secs * _POLL_GROWTH)
        self.ended = time.monotonic()
        return self.stats()

    def _give_up_if_hopeless(self) -> None:
        now = time.monotonic()
        if now - self._nimbus_asked < _NIMBUS_POLL_SECS:
            return
        self._nimbus_asked = now
        state = self.state()
        failed = [slot for slot, life in state.workers.items() if life == "failed"]
        last = state.restarts[-1] if state.restarts else None
        deaths = state.restarts_total
        if deaths > self._deaths_seen:
            progress = self._progress()
            if progress > self._progress_at_death:
                # However many deaths there were since the last look: it went on.
                self._deaths_without_progress = self._errors_without_progress = 0
            else:
                recent = state.restarts[self._deaths_seen - deaths :]
                self._deaths_without_progress += deaths - self._deaths_seen
                self._errors_without_progress += sum(bool(restart.error) for restart in recent)
            self._deaths_seen, self._progress_at_death = deaths, progress
        hopeless = (
            self._errors_without_progress >= _HOPELESS_ERRORS or self._deaths_without_progress >= _HOPELESS_DEATHS
        )
        if last is None or not (failed or hopeless):
            return
        why = (last.error or last.reason).splitlines()[0]
        times = max(1, self._deaths_without_progress)
        raise ClusterError(
            f"topology {self.name!r} makes no progress: worker {last.slot} died {times} times in a row, "
            f"at last with: {why}"
        )

    def _progress(self) -> int:
        """Messages that were answered for good, and deaths that brought one nearer to that."""
        return sum(
            reading.counters[name]
            for reading in self.readings() if reading.kind == "spout"
            for name in ("acked", "dead_letters", "crashes")
        )

    # ---- commands ----

    def activate(self) -> None:
        """Let the spouts emit."""
        self._client.activate(self.name)

    def deactivate(self) -> None:
        """Stop the spouts; what is under way is processed."""
        self._client.deactivate(self.name)

    def kill(self, wait_secs: float = 30.0, on_wait: Callable[[], bool | None] | None = None) -> int:
        """Drain (spouts stop, then until nothing is pending or `wait_secs` have passed), then remove the topology.

        Returns how many messages were still pending.
        """
        pending = self.drain(wait_secs, on_wait)
        self.remove(_STOP_GRACE_SECS)
        return pending

    def drain(self, wait_secs: float, on_wait: Callable[[], bool | None] | None = None) -> int:
        """Stop the spouts and wait until nothing is pending, or `wait_secs` have passed; how much still was."""
        self.deactivate()
        deadline = time.monotonic() + wait_secs
        while (pending := self._pending()) and time.monotonic() < deadline:
            if on_wait is not None and on_wait():
                break
            time.sleep(_POLL_SECS)
        return pending

    def remove(self, grace_secs: float) -> None:
        """Remove the topology without a drain; returns when its workers have closed their tasks and ended."""
        if self.removed:
            return
        if self.ended is None:
            self.ended = time.monotonic()
        self._last_state = self.state()
        self._client.kill_topology(self.name, 0.0)
        self._client.await_removed(self.id, grace_secs)
        self.removed = True

    def _pending(self) -> int:
        return sum(reading.counters["pending"] for reading in self.readings() if reading.kind == "spout")

    def close(self) -> None:
        """Let go of the board."""
        if self._board is not None:
            self._board.close()
            self._board = None
