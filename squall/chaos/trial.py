"""Runs a topology once on a real cluster, with or without faults: drains it, and collects observations and leftovers.

Guarantees: when `run` returns or raises, its cluster has ended. Observations are plain data.

Relies on: taps (`squall.chaos.taps`) for the fates of messages; this file watches processes and counts only.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from squall.chaos.injected import DaemonWatch, Death, DeathClaims, Injected, Injector
from squall.chaos.mix import Places
from squall.chaos.result_text import failures_text
from squall.chaos.tapping import Tapping, UnendedMessages, let_go
from squall.chaos.taps import tap
from squall.engine.api.config import Config
from squall.engine.api.topology import Topology
from squall.engine.errors import ClusterError
from squall.ipc import hash_seed
from squall.ipc.private import room_error
from squall.ipc.rundir import RunDir
from squall.scheduler.client.job import Job
from squall.scheduler.cluster.keeper_process import KeeperProcess
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.faults.sentence import Fault
from squall.scheduler.records.worker_ledger import read_history
from squall.testing.run_leftovers import descriptors, in_directory, left_behind, zombies

NAME = "chaos"
SETTINGS: dict[str, Any] = {"workers": 2, "message_timeout_secs": 5}
"""Default settings. The timeout is short because each seed may wait for it, until a lost message is emitted again."""
READY_SECS = 60.0
_BACK_SECS = 10.0
"""Longest wait for daemons to be back at the end: five times a keeper's longest pause before it starts one."""
_LOOK_SECS = 0.05
"""Between two looks at faults and daemons, which take a millisecond: a dead daemon is away for longer."""


class StoppedTrial(Exception):
    """The operator interrupted the run."""


@dataclass(frozen=True)
class Subject:
    """The topology to run, and how."""

    topology: Topology
    module: ModuleType | None
    """Its file, which workers cannot import."""
    config: Config
    sinks: tuple[str, ...]
    nodes: int = 1
    drain_secs: float = 60.0
    """Longest wait for pending messages after the faults."""
    hash_seed: int = field(default_factory=hash_seed.draw)
    """Of all its clusters: by seeds of their own, they send equal text to other tasks, which no fault has done."""


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
    """True if the spouts ended by themselves."""
    drained: bool = False
    why_not: str = ""
    """Why it was not drained."""
    injected: list[Injected] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    away: list[str] = field(default_factory=list)
    """Daemons that were dead at the end."""
    left: list[str] = field(default_factory=list)
    emitted_by_task: dict[str, int] = field(default_factory=dict)
    """Spout -> most emits of one of its tasks."""

    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started_secs


def run(
    subject: Subject, tapping: Tapping, draw: Callable[[Places], Sequence[Fault]], for_secs: float,
    to_its_end: bool, should_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Run the topology with taps for `for_secs` under faults, heal, drain, and observe.

    `draw(places)` gives the faults, once the workers are known. `to_its_end`: wait until the spouts are exhausted;
    otherwise they are stopped. Afterwards the cluster's logs are beside those of the taps. ClusterError if the cluster
    cannot begin; StoppedTrial.
    """
    before = descriptors()
    slots = -(-subject.config.workers // subject.nodes)
    # Its directory stays, to be examined.
    keeper = KeeperProcess(keep_dir=True, hash_seed=subject.hash_seed)
    cluster = LocalCluster(subject.nodes, slots, logs=False, keeper=keeper)
    try:
        outcome = _observe(cluster, subject, tapping, draw, for_secs, to_its_end, should_stop)
    finally:
        cluster.close()
        left = in_directory(cluster.run_dir)
        try:
            shutil.copytree(cluster.run_dir.logs, Path(tapping.directory, "logs"), dirs_exist_ok=True)
        finally:
            cluster.run_dir.remove()
            left += left_behind(cluster.run_dir, before)
    outcome.left += [f"the cluster did not end by itself: {cluster.forced}"] * bool(cluster.forced) + left
    return outcome


def _observe(
    cluster: LocalCluster, subject: Subject, tapping: Tapping,
    draw: Callable[[Places], Sequence[Fault]], for_secs: float, to_its_end: bool, should_stop: Callable[[], bool],
) -> Outcome:
    job = cluster.submit(NAME, tap(subject.topology, tapping), subject.config, subject.module)
    job.wait_until_ready(READY_SECS, should_stop)
    if should_stop():
        raise StoppedTrial
    view = job.view()
    assert view is not None, "its workers are ready"
    outcome = Outcome(time.monotonic())
    components = subject.topology.components
    bolts = [name for name, spec in components.items() if not spec.is_spout]
    workers, sink_workers = list(map(str, view.assignment.workers)), []
    for worker, executors in zip(workers, view.assignment.executors, strict=True):
        here = {executor.component for executor in executors}
        if not here.isdisjoint(subject.sinks) and here.isdisjoint(components.keys() - set(bolts)):
            sink_workers.append(worker)
    faults = draw(Places(workers, list(components), bolts, sink_workers, subject.sinks))
    injector = Injector(cluster, faults, outcome.started_secs)
    outcome.injected = injector.injected
    daemons = DaemonWatch(cluster.run_dir, subject.nodes)

    def look() -> None:
        if should_stop():
            raise StoppedTrial
        injector.turn()
        daemons.look(time.monotonic())
        if cluster.run_dir.lock_holder() is None:
            _check_room(cluster.run_dir)

    watch = _Watch(job, outcome, look, UnendedMessages(tapping.directory))
    try:
        try:
            outcome.exhausted = watch.until(for_secs, lambda: not faults and job.is_drained())
        finally:
            injector.heal()
        if to_its_end or not tapping.rates:
            # Else it would run into the next timeouts at full speed, and never be at rest.
            let_go(tapping)
        outcome.healed_secs = outcome.now()
        watch.drain(subject.drain_secs, to_its_end)
        watch.until(outcome.now() + _BACK_SECS, lambda: not daemons.away())
        outcome.secs = outcome.now()
        _count(job, outcome)
        outcome.deaths = _deaths(cluster, job, daemons, outcome)
        outcome.away = daemons.away()
        outcome.left = zombies(cluster.run_dir)
        _check_room(cluster.run_dir)
        job.kill(0.0)
    except ClusterError as error:
        # A full disk says nothing about the topology.
        _check_room(cluster.run_dir)
        outcome.drained = False
        outcome.why_not = f"the cluster failed: {error}"
    return outcome


def _check_room(run_dir: RunDir) -> None:
    """ClusterError if its disk is full: Nimbus would be waited for again and again."""
    if full := room_error(run_dir.durable):
        raise ClusterError(full)


def _count(job: Job, outcome: Outcome) -> None:
    for reading in job.readings():
        if reading.kind == "spout":
            most = max(reading.counters["emitted"], outcome.emitted_by_task.get(reading.component, 0))
            outcome.emitted_by_task[reading.component] = most


def _deaths(cluster: LocalCluster, job: Job, daemons: DaemonWatch, outcome: Outcome) -> list[Death]:
    """Every death of a worker or daemon, with the fault that explains it."""
    records, restarts = job.topology_state().restarts, job.stats().restarts
    recovery = {
        (record.slot, record.incarnation): (restart.ready_after_secs, restart.working_after_secs)
        for record, restart in zip(records, restarts, strict=False)
    }
    claims = DeathClaims.read(cluster.run_dir)
    deaths = []
    for step in read_history(cluster.run_dir.logs):
        if step.event == "died" and step.topology_id == job.id:
            ready, working = recovery.get((step.slot, step.incarnation), (None, None))
            died_at = step.at_monotonic_secs
            at_secs, by = round(died_at - outcome.started_secs, 6), claims.of(step.slot, step.pid, died_at)
            deaths.append(Death(step.slot, at_secs, step.reason, by, ready, working))
    for one in daemons.deaths:
        assert one.at_secs is not None, "it is dead"
        its = [one, *([] if one.supervisor is None else [one.supervisor])]
        by = next(filter(None, (claims.of(each.name, each.pid, one.at_secs) for each in its)), "")
        back = None if one.back_secs is None else round(one.back_secs - one.at_secs, 6)
        at_secs = round(one.at_secs - outcome.started_secs, 6)
        deaths.append(Death(one.name, at_secs, f"pid {one.pid} ended", by, back, back))
    return sorted(deaths, key=lambda death: death.at_secs)


class _Watch:
    """Waits, and looks around while it does."""

    def __init__(self, job: Job, outcome: Outcome, look: Callable[[], None], open_messages: UnendedMessages) -> None:
        self._job = job
        self._outcome = outcome
        self._look = look
        self._open = open_messages

    def until(self, end_secs: float, done: Callable[[], bool]) -> bool:
        """Wait until `end_secs` after the start, or until `done`. Returns whether it is done. Raises StoppedTrial."""
        while True:
            now = self._outcome.now()
            self._look()
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
            outcome.drained = self._stop(end_secs)
        # Seen once is enough: a worker in a turn just now, for a tick, is not quiet.
        outcome.drained = outcome.drained or outcome.exhausted
        if not outcome.drained:
            stats, view = job.stats(), job.view()
            why = "" if view is None else view.undrained()
            said = [f"{stats.pending} messages pending", f"{stats.waiting} wait for a retry", why]
            outcome.why_not = "; ".join(filter(None, [*said, *failures_text(stats.failures)]))

    def _stop(self, end_secs: float) -> bool:
        """Stop an endless source once every message that it has emitted is answered. Returns whether all are."""
        while True:
            # A spout that starts again reaches these messages in its own time: stop it only then.
            self.until(end_secs, partial(self._are_answered, set(self._open.read())))
            self._job.deactivate()
            is_at_rest = self.until(end_secs, self._at_rest)
            if not is_at_rest or not self._open.read():
                return is_at_rest
            # What failed meanwhile is emitted again by an active spout only.
            self._job.activate()

    def _are_answered(self, keys: set[bytes]) -> bool:
        return keys.isdisjoint(self._open.read())

    def _at_rest(self) -> bool:
        view = self._job.view()
        return view is not None and view.is_at_rest()
