"""A submitted topology, seen from the client: waiting, statistics, commands.

Guarantees: counts are read from the shared status board, so asking costs the workers nothing. `wait_until_drained`
returns only when every spout is exhausted, nothing is pending, and no tuple is under way in or between workers; it
raises with the workers' own error if the topology cannot make progress.

Process: any of the owner's. Thread: one per Job.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from squall.engine.api.user_metrics import MetricReading
from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import plural
from squall.engine.report.failure_log import ComponentFailures, equal_deaths
from squall.engine.report.metrics import Unfinished
from squall.engine.report.run_report import Restart, RunReport, TaskReading, build_report
from squall.engine.state.reading import read_component
from squall.ipc.board import LINK_COUNTERS, Board, BoardMissing
from squall.ipc.metric_file import read_metrics
from squall.ipc.private import read_lines
from squall.scheduler.client.nimbus_client import START_SECS, Interrupted, OnWait, nimbus_is_stopped
from squall.scheduler.client.topology_code import submit_again
from squall.scheduler.common.messages import Assignment, RestartRecord, TopologyRecord, TopologyState
from squall.scheduler.records.failure_file import read_failures, read_stopped
from squall.scheduler.records.topology_view import TopologyView

if TYPE_CHECKING:
    from squall.scheduler.client.nimbus_client import NimbusClient

FINISHED, KILLED = "FINISHED", "KILLED"
_POLL_SECS, _POLL_MAX_SECS = 0.002, 0.02
"""Pause between two looks at the board, first and longest: a look with the logs costs some 0.2 ms, and the end of a
long run may be noticed a fiftieth of a second late."""
_POLL_GROWTH = 1.05
"""Factor by which the pause grows with each look."""
_NIMBUS_POLL_SECS = 0.25
"""Between two questions to Nimbus during a wait: a hopeless topology is noticed soon, and Nimbus is hardly burdened."""
STOP_GRACE_SECS = 15.0
"""Longest wait for a worker to close its tasks: the supervisor kills it long before."""
_NIMBUS_PAUSE_SECS = 0.01
"""Between two questions to Nimbus during a move: a user does not notice so short a delay."""


class Gone(ClusterError):
    """The topology was removed."""


class Job:
    """One topology on a cluster, returned by `submit` and `job`. Every method raises ClusterError if the cluster does
    not answer."""

    def __init__(self, client: NimbusClient, record: TopologyRecord, started_secs: float | None = None) -> None:
        """`started_secs`: start of the counted time (monotonic); None: now."""
        self._client = client
        self.name = record.name
        """The topology's name."""
        self.id = record.id
        """Its id, which no other topology ever has: name, number and a random part."""
        self.record = record
        """The topology as Nimbus stored it when this object was made."""
        self.run_dir = client.run_dir
        """The directory of its cluster."""
        self._view: TopologyView | None = None
        self.started = time.monotonic() if started_secs is None else started_secs
        """When its time began, from which its reports count, in seconds of the monotonic clock."""
        self._nimbus_asked = 0.0
        self._last_state: TopologyState | None = None
        self.readings_reported: list[TaskReading] = []
        """The counters of tasks that the last report was made from."""
        self.metrics_reported: list[MetricReading] = []
        """The components' metrics that the last report was made from."""
        self._last_failures: dict[str, ComponentFailures] = {}
        self.takes_up_state: bool | None = None
        """Whether it goes on from state that an earlier topology of its name left; None if another program submitted
        it."""
        self.ended: float | None = None
        """When it was found drained, in seconds of the monotonic clock; None: not yet."""
        self.removed = False
        """Whether it was killed or has left the cluster, as far as this object knows."""
        self._drained = self._idle = False
        """At the last look before the topology was removed."""

    # ---- state ----

    def topology_state(self) -> TopologyState:
        """Return Nimbus's view, or its last one before the removal. ClusterError if Nimbus does not answer."""
        if self.removed and self._last_state is not None:
            return self._last_state
        try:
            state = self._ask()
        except Gone:
            if self._last_state is None or self.ended is None or not self.record.remove_when_drained:
                raise
            self.removed = self._drained = True
            return self._last_state
        while True:
            try:
                self._refresh(state.assignment)
                self._last_state = state
                return state
            except BoardMissing:
                # The topology may have moved after the answer: Nimbus makes the next board, then removes this one.
                newer = self._ask()
                if newer.assignment == state.assignment:
                    raise
                state = newer

    def state(self, component: str) -> dict[Any, Any]:
        """Return what the state of a component holds: of a bolt with state, all tasks together, as committed last.
        UsageError if it has none."""
        return read_component(self.run_dir.topology_state(self.name), component)

    def known_state(self) -> TopologyState:
        """Nimbus's view as of the last question to it, which a report asks too."""
        return self._last_state or self.topology_state()

    def known_deaths(self) -> list[RestartRecord]:
        """The newest deaths at the last look at Nimbus, which waits and reports have; oldest first."""
        return [] if self._last_state is None else self._last_state.restarts

    def _ask(self) -> TopologyState:
        try:
            state = self._client.get_topology(self.name)
        except UsageError:
            raise Gone(f"topology {self.id} is gone") from None
        if state.topology.id != self.id:
            raise Gone(f"topology {self.id} is gone; {self.name!r} is now the name of another one")
        self.record = state.topology
        return state

    def status(self, state: TopologyState | None = None) -> str:
        """Return, as of `state` or of now, "ACTIVE", "INACTIVE", "REBALANCING" or "KILLED"; "STOPPED" if errors keep it
        from its work (`why_stopped`); or "FINISHED" if its spouts are exhausted and nothing is pending. For a topology
        that is gone: "FINISHED" if it left by itself, else "KILLED".
        """
        if self.removed:
            return FINISHED if self.record.remove_when_drained and self._drained else KILLED
        status = (state or self.topology_state()).topology.status
        if status == "ACTIVE" and self.why_stopped(state):
            return "STOPPED"
        return FINISHED if status == "ACTIVE" and self.is_drained() else status

    def why_stopped(self, state: TopologyState | None = None) -> str:
        """The fault of its set-up at which it has stopped, or the error by which its workers die again and again; "" if
        there is none."""
        return read_stopped(self.run_dir, self.id) or self._why_hopeless(state)

    def _why_hopeless(self, state: TopologyState | None = None) -> str:
        state, view = (self._last_state, None) if self.removed else (state or self.topology_state(), self.view())
        deaths, hopeless = (0, False) if view is None else view.deaths_in_a_row()
        if state is None or not state.restarts or not (hopeless or "failed" in state.workers.values()):
            return ""
        *_, last = equal = equal_deaths(state.restarts)[-1]
        how_often = f"{deaths} times in a row" if deaths > 1 else plural(len(equal), "time")
        return f"worker {last.slot} died {how_often}, at last with: {(last.error or last.reason).splitlines()[0]}"

    def _refresh(self, assignment: Assignment | None) -> None:
        """Open the board of the present assignment: the topology may have moved."""
        if self._view is not None and (assignment is None or assignment.version != self._view.assignment.version):
            self._view.board.close()
            self._view = None
        if self._view is None and assignment is not None:
            board = Board.attach(self.run_dir.board(self.id, assignment.version))
            self._view = TopologyView(board, assignment, self.record)

    def view(self) -> TopologyView | None:
        """The topology's board; None while it waits for a slot. Valid until the next call of a method."""
        if self._view is None:
            self.topology_state()
        return self._view

    def readings(self) -> list[TaskReading]:
        """Return the counters of every task; an empty list while the topology waits for a slot."""
        view = self.view()
        return [] if view is None else view.readings()

    def stats(self) -> RunReport:
        """Return the report as of now. Asking costs the workers nothing."""
        return self._report(self._drained)

    def _report(self, drained: bool) -> RunReport:
        """`drained`: it was seen to be drained before. What is not known to be executed is unknown then, even if a
        worker acts just now, on a tick or a late frame of a peer, and thus is not quiet."""
        until = self.ended if self.ended is not None else time.monotonic()
        deaths = self.topology_state().restarts
        view = self.view()
        readings, idle = ([], False) if view is None else view.readings_and_idle()
        self.readings_reported = readings
        restarts = [restart_of(death, _working_after(death, view), self.started) for death in deaths]
        report = build_report(
            self.name, readings, until - self.started, restarts, drained or self.is_drained(), self._metrics(),
            drained or self._idle or idle,
        )
        return replace(
            report, failures=self._failures(), links=self._links(), close_errors=self._close_errors()
        )

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    def _metrics(self) -> list[MetricReading]:
        """The components' metrics; their files go with the topology."""
        metrics = list(read_metrics(self.run_dir.metrics(self.id)))
        self.metrics_reported = metrics or self.metrics_reported
        return self.metrics_reported

    def _failures(self) -> dict[str, ComponentFailures]:
        """The failures since this job began; their files go with the topology."""
        failures = read_failures(self.run_dir, self.id, self.started)
        self._last_failures = failures or self._last_failures
        return self._last_failures

    def _close_errors(self) -> list[str]:
        """The errors that its tasks raised at their end; complete once the topology is removed."""
        paths = sorted(self.run_dir.worker_logs(self.id).glob("*.close-errors"))
        return [str(json.loads(line)) for path in paths for line in read_lines(path)]

    def _links(self) -> dict[str, int]:
        view = self.view()
        counts = [] if view is None else [view.board.link_counts(slot) for slot in range(view.board.n_slots)]
        return {name: sum(count[name] for count in counts) for name in LINK_COUNTERS}

    def wait_until_ready(self, timeout: float = START_SECS, on_wait: OnWait = None) -> None:
        """Wait until every worker has opened its tasks. ClusterError if `timeout` seconds (60) pass first.

        `on_wait` is called between looks; when it returns True the wait ends early.
        """
        deadline = time.monotonic() + timeout
        while (view := self.view()) is None or not view.all_ready():
            if on_wait is not None and on_wait():
                return
            self._give_up_if_hopeless()
            if time.monotonic() >= deadline:
                raise ClusterError(f"the workers of topology {self.name!r} were not ready within {timeout:g} s")
            time.sleep(_POLL_SECS)

    # ---- draining ----

    def is_drained(self) -> bool:
        """Return True if all spouts are exhausted and nothing is pending or under way."""
        view = self.view()
        return view is not None and view.is_drained()

    def is_idle(self) -> bool:
        """Return True if nothing is under way in or between workers; spouts may have more to emit, and messages may be
        pending."""
        view = self.view()
        return view is not None and view.is_idle()

    def wait_until_drained(
        self, timeout: float | None = None, on_wait: OnWait = None
    ) -> RunReport:
        """Wait until all spouts are exhausted and nothing is pending, and return the report. A topology that was
        submitted with `remove_when_drained` has left by then, so its name is free.

        `on_wait` is called again and again meanwhile; when it returns True the wait ends early. Raises ClusterError if
        `timeout` seconds pass first, or if the topology keeps dying without progress. By default there is no limit: a
        job may take days, and an endless topology is never drained.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        drained = self.await_drained(timeout, on_wait)
        while drained and nimbus_is_stopped(self.run_dir) and time.monotonic() < deadline:
            if on_wait is not None and on_wait():
                break
            time.sleep(_NIMBUS_PAUSE_SECS)
        report = self._report(drained)
        if drained and self.record.remove_when_drained and not self.removed:
            self._remember()
            self._drained = True  # whatever the board says of workers that have ended meanwhile
            # One that leaves slowly has been processed all the same: who needs its name asks `await_removed`.
            with contextlib.suppress(ClusterError):
                self.await_removed(min(STOP_GRACE_SECS, max(0.0, deadline - time.monotonic())))
        return report

    def await_drained(self, timeout: float | None = None, on_wait: OnWait = None) -> bool:
        """Like `wait_until_drained`, also without a limit by default, but only return True if it is drained: a fault
        may have stopped Nimbus."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause_secs = _POLL_SECS
        while not self.is_drained():
            if on_wait is not None and on_wait():
                return False
            if self._give_up_if_hopeless():
                break
            if deadline is not None and time.monotonic() >= deadline:
                view, stats = self.view(), self.stats()
                why = "it waits for a free slot" if view is None else view.undrained()
                raise ClusterError(
                    f"topology {self.name!r} was not drained within {timeout:g} s: {stats.pending} messages pending, "
                    f"{stats.waiting} waiting for a retry, {stats.acked} acked of {stats.emitted} emitted; {why}"
                )
            # Random, so as not to fall in step with ticks that emit, or anything else that often keeps a worker busy.
            time.sleep(pause_secs * random.uniform(0.5, 1.0))
            pause_secs = min(_POLL_MAX_SECS, pause_secs * _POLL_GROWTH)
        self.ended = time.monotonic()
        return True

    def _give_up_if_hopeless(self) -> bool:
        """ClusterError if the supervisors have judged the topology hopeless, or it is gone. True if it has finished and
        left meanwhile, as it was told to."""
        now = time.monotonic()
        if now - self._nimbus_asked < _NIMBUS_POLL_SECS:
            return False
        self._nimbus_asked = now
        if nimbus_is_stopped(self.run_dir):
            # It will be asked when the fault is over; a question now would only hold up the caller.
            return False
        try:
            self.topology_state()
        except Gone:
            if self.record.remove_when_drained and self._view is not None and self._view.has_finished():
                return True
            raise
        if why := read_stopped(self.run_dir, self.id):
            raise ClusterError(f"topology {self.name!r} has stopped: {why}")
        if why := self._why_hopeless():
            raise ClusterError(f"topology {self.name!r} makes no progress: {why}")
        return False

    # ---- commands ----

    def activate(self) -> None:
        """Let the spouts emit again."""
        self._client.activate(self.name)

    def deactivate(self) -> None:
        """Stop the spouts; tuples under way are processed."""
        self._client.deactivate(self.name)

    def kill(self, wait_secs: float = 30.0, on_wait: OnWait = None) -> Unfinished:
        """Stop the spouts, wait until nothing is pending or `wait_secs` (30) have passed, then remove the topology.

        Returns an int, the number of messages that were still pending; its `.waiting` is the number that spouts held
        for a retry, its `.untracked` the number of tuples without a tree that were not executed, as far as is known.
        `on_wait` is called meanwhile; when it returns True the wait ends.
        """
        self._remember()
        self._client.kill_topology(self.name, wait_secs)
        try:
            self._client.await_removed(self.id, wait_secs + STOP_GRACE_SECS, on_wait)
        except Interrupted:
            self._client.kill_topology(self.name, 0.0)
            self._client.await_removed(self.id, STOP_GRACE_SECS)
        self.removed = True
        return self._unfinished()

    def give_way(
        self, submit: Callable[[], TopologyRecord], wait_secs: float, on_wait: OnWait = None
    ) -> tuple[TopologyRecord, Unfinished]:
        """Have another topology submitted in place of this one, and wait until it is there; this one drains for at most
        `wait_secs`. Returns the other, and what `kill` returns. When `on_wait` returns True, Interrupted is raised."""
        self._remember()
        record = submit()
        self._client.await_begun(record, wait_secs + STOP_GRACE_SECS, on_wait)
        self.removed = True
        return record, self._unfinished()

    def rebalance(
        self, workers: int | None = None, parallelism: Mapping[str, int] | None = None, wait_secs: float = 30.0,
        tasks: Mapping[str, int] | None = None,
    ) -> Unfinished:
        """Run on `workers` workers, with `parallelism[component]` executors of each component named there (at most as
        many as it has tasks). What is not given stays.

        The spouts stop; when nothing is pending, or after `wait_secs` (30), every worker is replaced. Tasks keep their
        state directories, spouts are opened again. Returns, when the new workers are being started, what `kill`
        returns.
        ClusterError if there is no free slot to move to.

        With `tasks`, numbers of tasks by component, it is replaced by itself: this object then stands for the topology
        that has come, whose id is another. UsageError or ClusterError, and nothing has happened, if its state cannot be
        dealt to so many.
        """
        if tasks:
            given = dict(tasks), workers, dict(parallelism or {}), wait_secs
            record, unfinished = self.give_way(
                lambda: submit_again(self._client, self.record, *given), wait_secs
            )
            self.close()
            Job.__init__(self, self._client, record)
            return unfinished
        before = self.view()
        version = 0 if before is None else before.assignment.version
        self._client.rebalance(self.name, workers, dict(parallelism or {}), wait_secs)
        deadline = time.monotonic() + wait_secs + STOP_GRACE_SECS
        while True:
            # Not `topology_state`: it opens the new board: pending messages are read off that of the stopped workers.
            state = self._client.get_topology(self.name)
            if state.topology.status == "KILLED":
                raise ClusterError(f"topology {self.name!r} was killed before it had moved")
            assignment = state.assignment
            if state.topology.status != "REBALANCING" and (assignment is None or assignment.version > version):
                break
            if time.monotonic() >= deadline:
                raise ClusterError(f"topology {self.name!r} still waits for a free slot to move to")
            time.sleep(_NIMBUS_PAUSE_SECS)
        unfinished = Unfinished(0) if before is None else before.unfinished()
        self.record = state.topology
        self._refresh(None)  # The next look finds the new board.
        return unfinished

    def drain(self, wait_secs: float, on_wait: OnWait = None) -> Unfinished:
        """Stop the spouts and wait until nothing is pending, or `wait_secs` have passed. Returns what `kill`
        returns."""
        if self.is_drained():
            return Unfinished(0)
        self.deactivate()
        deadline = time.monotonic() + wait_secs
        while (view := self.view()) is not None and not view.is_at_rest() and time.monotonic() < deadline:
            if on_wait is not None and on_wait():
                break
            time.sleep(_POLL_SECS)
        return self._unfinished()

    def await_removed(self, timeout_secs: float = STOP_GRACE_SECS) -> None:
        """Wait until the topology is gone, which was submitted to leave when it has finished. ClusterError if
        `timeout_secs` (15) pass first."""
        self._client.await_removed(self.id, timeout_secs)
        self.removed = self._drained = True

    def _remember(self) -> None:
        """Keep state that can no longer be read once the topology is removed."""
        self._last_state = self.topology_state()
        self._drained, self._idle = self.is_drained(), self.is_idle()
        self._metrics()
        self._failures()
        if self.ended is None:
            self.ended = time.monotonic()

    def _unfinished(self) -> Unfinished:
        view = self.view()
        return Unfinished(0) if view is None else view.unfinished()

    def close(self) -> None:
        """Close the board."""
        if self._view is not None:
            self._view.board.close()
            self._view = None


def restart_of(death: RestartRecord, working_after: float | None, started: float) -> Restart:
    """A death as the report tells it. On a busy machine a replacement may have worked before its supervisor took in
    that it was ready: then it was ready by that time."""
    ready_after = death.ready_after_secs
    if ready_after is not None and working_after is not None:
        ready_after = min(ready_after, working_after)
    at = round(death.at_monotonic_secs - started, 6)
    return Restart(death.slot, death.reason, at, ready_after, death.error, death.rss_bytes, working_after)


def _working_after(death: RestartRecord, view: TopologyView | None) -> float | None:
    """Seconds from a death until the replacement worked: from Nimbus, or from the board while it lives."""
    if death.working_after_secs is not None or view is None:
        return death.working_after_secs
    working_secs = view.working_secs(death.slot, death.incarnation + 1)
    if working_secs is None or working_secs < death.at_monotonic_secs:
        return None
    return round(working_secs - death.at_monotonic_secs, 6)
