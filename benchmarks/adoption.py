"""Measures the adoption of workers: the time from a supervisor's SIGKILL until all its workers are adopted, and from
Nimbus's SIGKILL to an answer of its successor; checks that nothing is lost; measures the cost of an idle worker.

Relies on: the keeper's restart policy, which the kills respect, and the supervisor's history, which records when a
worker was adopted.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.recovery import has_acked, messages_lost, topology, until
from benchmarks.scaling import cpu_secs
from squall import BasicBolt, BasicCollector, Config, Spout, Topology, TopologyBuilder, Tuple
from squall.engine.errors import ClusterError
from squall.ipc.rundir import RunDir
from squall.scheduler.client.job import Job
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.client.topology_code import pack, submit
from squall.scheduler.cluster.daemons import OPTIONS
from squall.scheduler.cluster.starting import start_cluster
from squall.scheduler.cluster.stopping import stop_cluster
from squall.scheduler.records.worker_ledger import BEGIN, read_history

WORKERS = 4
_BETWEEN_SECS = (0.6, 0.8)
"""Time from a daemon's return to the death of the other, in turn: each lives longer than its probation."""
_PATIENCE_SECS = 20.0


@dataclass(frozen=True)
class Adoption:
    """The results."""

    adopted_secs: list[float]
    """Seconds from each SIGKILL of the supervisor until the last worker is ready in its successor's record."""
    answer_secs: list[float]
    """Seconds from each SIGKILL of Nimbus to an answer of its successor."""
    lost: int
    """Messages that were read and never acked."""
    dead_letters: int
    workers_died: int


class Paced:
    """Kills one daemon, at most as often as its keeper restarts it."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._at: deque[float] = deque(maxlen=OPTIONS.max_deaths)

    def kill(self, pid: int) -> float:
        """Kill a process and wait for its end. Returns the monotonic time of the kill."""
        time.sleep(self._rng.uniform(*_BETWEEN_SECS))
        if len(self._at) == OPTIONS.max_deaths:
            time.sleep(max(0.0, self._at[0] + OPTIONS.period_secs + 1.0 - time.monotonic()))
        pidfd = os.pidfd_open(pid)
        try:
            self._at.append(time.monotonic())
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            if not select.select([pidfd], [], [], _PATIENCE_SECS)[0]:
                raise ClusterError(f"process {pid} does not end by SIGKILL")
        finally:
            os.close(pidfd)
        return self._at[-1]


class Idle(Spout):
    """A spout that never emits."""

    outputs = ("n",)

    def next_tuple(self) -> None:
        """Do nothing."""


class Nothing(BasicBolt):
    """A bolt that is never called."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Do nothing."""


@contextlib.contextmanager
def standing(path: Path) -> Iterator[RunDir]:
    """A cluster with a keeper, and a slot for each worker."""
    run_dir = start_cluster(path, nodes=1, slots=WORKERS, is_bound=False).run_dir
    try:
        yield run_dir
    finally:
        stop_cluster(run_dir, 0.0)


def measure_adoption(run_dir: RunDir, kills: int, seed: int, directory: Path) -> Adoption:
    """Kill the supervisor of four busy workers, and Nimbus, `kills` times each, in turn."""
    rng = random.Random(seed)
    supervisors, nimbuses = Paced(rng), Paced(rng)
    adopted_secs, answer_secs = [], []
    with NimbusClient(run_dir, patience_secs=_PATIENCE_SECS) as client:
        config = Config(workers=WORKERS, message_timeout_secs=3600, max_spout_pending=1000)
        job = _submit(client, topology(str(directory), WORKERS), config)
        try:
            pids = _ready_pids(job)
            for _ in range(kills):
                until(partial(has_acked, job, job.stats().acked + 2000), job, "acks")
                killed_at = supervisors.kill(_supervisor(run_dir))
                adopted_secs.append(_adopted_at(job, run_dir, killed_at, pids) - killed_at)
                killed_at = nimbuses.kill(int(run_dir.lock_holder() or 0))
                with NimbusClient(run_dir, patience_secs=_PATIENCE_SECS) as fresh:
                    fresh.get_cluster()
                answer_secs.append(time.monotonic() - killed_at)
            (directory / "enough").touch()
            report = job.wait_until_drained(timeout=120)
            lost = messages_lost(directory, run_dir, job.name, WORKERS)
            job.kill(wait_secs=0)
        finally:
            job.close()
    return Adoption(adopted_secs, answer_secs, lost, report.dead_letters, len(report.restarts))


def measure_idle(run_dir: RunDir, settle_secs: float, secs: float) -> list[float]:
    """Share of a processor that each of four idle workers takes."""
    builder = TopologyBuilder()
    builder.set_spout("idle", Idle(), WORKERS)
    builder.set_bolt("nothing", Nothing(), WORKERS).shuffle_grouping("idle")
    with NimbusClient(run_dir) as client:
        job = _submit(client, builder.build(), Config(workers=WORKERS))
        try:
            workers = _ready_pids(job)
            # Leave out opening and the first heartbeats.
            time.sleep(settle_secs)
            before = [cpu_secs([worker]) for worker in workers]
            time.sleep(secs)
            return [(cpu_secs([worker]) - spent) / secs for worker, spent in zip(workers, before, strict=True)]
        finally:
            job.close()


def _submit(client: NimbusClient, made: Topology, config: Config) -> Job:
    record = submit(client, "adoption", config, pack(made, config))
    return Job(client, record)


def _ready_pids(job: Job) -> list[int]:
    job.wait_until_ready(_PATIENCE_SECS)
    view = job.view()
    if view is None:
        raise ClusterError(f"topology {job.name!r} has no workers")
    return sorted(view.board.slot(index).pid for index in range(WORKERS))


def _supervisor(run_dir: RunDir) -> int:
    """Pid of the last supervisor that began."""
    return next(step.pid for step in reversed(read_history(run_dir.logs)) if step.event == BEGIN)


def _adopted_at(job: Job, run_dir: RunDir, killed_at: float, pids: list[int]) -> float:
    """Time at which the last worker was ready in the record of a supervisor that began after `killed_at`."""

    def ready() -> dict[int, float]:
        steps = [step for step in read_history(run_dir.logs) if step.at_monotonic_secs > killed_at]
        return {step.pid: step.at_monotonic_secs for step in steps if step.event == "ready"}

    until(lambda: len(ready()) == WORKERS, job, "all workers to be adopted")
    found = ready()
    if sorted(found) != pids:
        raise ClusterError(f"adopted are {sorted(found)}, to be adopted were {pids}")
    return max(found.values())
