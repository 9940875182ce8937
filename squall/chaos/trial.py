"""Runs a topology once on a real cluster, with or without faults: drains it, and collects observations and leftovers.

Guarantees: when `run` returns or raises, its cluster has ended. Observations are plain data.

Relies on: taps (`squall.chaos.taps`) for the fates of messages; this file watches processes and counts only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from squall.chaos.injector import Injected, Injector
from squall.chaos.mix import Places
from squall.chaos.open_messages import OpenMessages
from squall.chaos.taps import Tapping, let_go, tap
from squall.engine.api.config import Config
from squall.engine.api.topology import Topology
from squall.scheduler.breaking.fault_record import BEGIN, HIT, read_record
from squall.scheduler.client.job import Job
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.faults.fault import Fault
from squall.scheduler.supervisor.history import read_history
from squall.testing.leftovers import descriptors, left_behind

NAME = "chaos"
SETTINGS: dict[str, Any] = {"workers": 2, "message_timeout_secs": 5}
"""Default settings. The timeout is short because each seed may wait for it, until a lost message is emitted again."""
READY_SECS = 60.0
_LOOK_SECS = 0.02
_SAMPLE_SECS = 0.2


class Stopped(Exception):
    """The operator interrupted the run."""


@dataclass(frozen=True)
class Subject:
    """The topology to run, and how."""

    topology: Topology
    module: ModuleType | None
    """Its file, which workers cannot import."""
    config: Config
    nodes: int
    sinks: tuple[str, ...]
    drain_secs: float
    """Longest wait for pending messages after the faults."""


@dataclass
class Death:
    """An unrequested end of a worker."""

    worker: str
    at_secs: float
    """Seconds after the start."""
    reason: str
    claimed_by: str = ""
    """The fault that explains it; empty if there is none."""
    ready_after_secs: float | None = None
    working_after_secs: float | None = None


@dataclass
class Sample:
    """Counts at one moment."""

    at_secs: float
    acked: int
    pending: int


@dataclass
class Outcome:
    """The observations of one run."""

    started_secs: float
    """On the monotonic clock; every other time is relative to it."""
    secs: float = 0.0
    """Seconds until it was drained, or the drain was given up."""
    healed_secs: float = 0.0
    """Time of the end of the last fault."""
    exhausted: bool = False
    """Whether the spouts ended by themselves."""
    drained: bool = False
    why_not: str = ""
    """Why it was not drained."""
    injected: list[Injected] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    emitted_by_task: dict[str, int] = field(default_factory=dict)
    """Spout -> most emits of one of its tasks."""
    emitted: int = 0
    acked: int = 0
    failed: int = 0

    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started_secs


def run(
    subject: Subject, tapping: Tapping, draw: Callable[[Places], Sequence[Fault]], for_secs: float,
    to_its_end: bool, should_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Run the topology with taps for `for_secs` under faults, heal, drain, and observe.

    `draw(places)` gives the faults, once the workers are known. `to_its_end`: wait until the spouts are exhausted;
    otherwise they are stopped. ClusterError if the cluster itself fails; Stopped.
    """
    before = descriptors()
    slots = -(-subject.config.workers // subject.nodes)
    cluster = LocalCluster(subject.nodes, slots, logs=False)
    try:
        job = cluster.submit(NAME, tap(subject.topology, tapping), subject.config, subject.module)
        job.wait_until_ready(READY_SECS)
        view = job.view()
        assert view is not None, "its workers are ready"
        outcome = Outcome(time.monotonic())
        faults = draw(Places([str(worker) for worker in view.assignment.workers], list(subject.topology.components)))
        injector = Injector(cluster, faults, outcome.started_secs)
        outcome.injected = injector.injected
        watch = _Watch(cluster, job, outcome, injector, OpenMessages(tapping.directory), should_stop)
        try:
            outcome.exhausted = watch.until(for_secs, lambda: not faults and job.is_drained())
        finally:
            injector.heal()
        let_go(tapping)
        outcome.healed_secs = outcome.now()
        watch.drain(subject.drain_secs, to_its_end)
        outcome.secs = outcome.now()
        _count(job, outcome)
        outcome.deaths = _deaths(cluster, job, outcome)
        job.kill(0.0)
    finally:
        cluster.close()
    outcome.left = left_behind(cluster.run_dir, before)
    return outcome


def _count(job: Job, outcome: Outcome) -> None:
    report = job.stats()
    outcome.emitted, outcome.acked, outcome.failed = report.emitted, report.acked, report.failed
    for reading in job.readings():
        if reading.kind == "spout":
            most = max(reading.counters["emitted"], outcome.emitted_by_task.get(reading.component, 0))
            outcome.emitted_by_task[reading.component] = most


def _deaths(cluster: LocalCluster, job: Job, outcome: Outcome) -> list[Death]:
    """Every worker's death that its supervisor recorded, with the fault that explains it."""
    records, restarts = job.state().restarts, job.stats().restarts
    recovery = {
        (record.slot, record.incarnation): (restart.ready_after_secs, restart.working_after_secs)
        for record, restart in zip(records, restarts, strict=False)
    }
    claims = _claims(cluster)
    deaths = []
    for step in read_history(cluster.run_dir.logs):
        if step.event == "died" and step.topology_id == job.id:
            ready, working = recovery.get((step.slot, step.incarnation), (None, None))
            at_secs, by = round(step.at_secs - outcome.started_secs, 6), claims.get((step.slot, step.pid), "")
            deaths.append(Death(step.slot, at_secs, step.reason, by, ready, working))
    return deaths


def _claims(cluster: LocalCluster) -> dict[tuple[str, int], str]:
    """(worker, pid) -> kind of the fault that hit it, from the record written before the fault."""
    claims = {}
    for event in read_record(cluster.run_dir):
        hit = event.get("victims", ()) if event["event"] == BEGIN else [event] if event["event"] == HIT else ()
        claims.update({(victim["name"], victim["pid"]): event["kind"] for victim in hit})
    return claims


class _Watch:
    """Waits, and takes samples while it does."""

    def __init__(
        self, cluster: LocalCluster, job: Job, outcome: Outcome, injector: Injector, open_messages: OpenMessages,
        should_stop: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._outcome = outcome
        self._injector = injector
        self._open = open_messages
        self._should_stop = should_stop
        self._sampled_secs = -_SAMPLE_SECS

    def until(self, end_secs: float, done: Callable[[], bool]) -> bool:
        """Wait until `end_secs` after the start, or until `done`. Returns whether it is done. Raises Stopped."""
        while True:
            if self._should_stop():
                raise Stopped
            self._cluster.check_daemons()
            self._injector.turn()
            now = self._outcome.now()
            if now - self._sampled_secs >= _SAMPLE_SECS:
                self._sampled_secs = now
                self._sample(now)
            if done():
                return True
            if now >= end_secs:
                return False
            time.sleep(_LOOK_SECS)

    def drain(self, secs: float, to_its_end: bool) -> None:
        """Wait, after the faults, until every emitted message is answered."""
        job, outcome = self._job, self._outcome
        end_secs = outcome.now() + secs
        if to_its_end:
            outcome.exhausted = outcome.exhausted or self.until(end_secs, job.is_drained)
        elif not outcome.exhausted:
            # A spout that starts again reaches these messages in its own time: stop it only then.
            emitted = set(self._open.read())
            self.until(end_secs, lambda: emitted.isdisjoint(self._open.read()))
            job.deactivate()
            outcome.drained = self.until(end_secs, self._at_rest)
        # Seen once is enough: a worker in a turn just now, for a tick, is not quiet.
        outcome.drained = outcome.drained or outcome.exhausted
        if not outcome.drained:
            stats, view = job.stats(), job.view()
            why = "" if view is None else view.undrained()
            outcome.why_not = f"{stats.pending} messages pending, {stats.waiting} wait for a retry; {why}"

    def _at_rest(self) -> bool:
        view = self._job.view()
        return view is not None and view.is_at_rest()

    def _sample(self, now: float) -> None:
        view = self._job.view()
        if view is not None:
            acked, pending = view.spout_total("acked"), view.spout_total("pending")
            self._outcome.samples.append(Sample(round(now, 3), acked, pending))
