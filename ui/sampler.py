"""Looks at a cluster once a second and keeps the newest description of it and of each of its topologies.

Guarantees
    * However many pages, programs and scrapers ask, the cluster is looked at by one thread, once a second; on a machine
      or a topology that makes a look slow, for at most a twentieth of the time.
    * Nimbus may be away: what is known stays, with its age, and the next Nimbus is found by itself.
    * `counts` only grow while a topology has its id, whoever dies.

Relies on: `scheduler.client.described`. Thread: its own; the methods may be called from any.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from squall.engine.api.user_metrics import MetricReading
from squall.engine.errors import ClusterError, SquallError, UsageError
from squall.engine.report.run_report import Percentiles, TaskReading
from squall.ipc.rundir import RunDir
from squall.scheduler.client.described import describe, describe_cluster
from squall.scheduler.client.job import Gone, Job
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.client.standing import uptime_secs
from squall.scheduler.client.statuses import ClusterStatus, Rates, Status
from squall.scheduler.common.messages import TopologyRecord

INTERVAL_SECS = 1.0
_SHARE = 20
"""A look takes at most one in so many seconds of a core. On a busy machine it may last longer, which costs nobody."""
_ASK_SECS = 2.0
"""Longest wait for Nimbus: it answers in milliseconds, or is being restarted."""


class Unknown(UsageError):
    """There is no such topology or component."""


@dataclass(frozen=True)
class Sample:
    """One topology as it was at a moment."""

    at_unix_secs: float
    at_monotonic_secs: float
    secs: float
    """Since the look before: the time over which its rates are measured."""
    status: Status
    before: Status
    """That of the look before; the same one at the first look."""
    readings: list[TaskReading]
    """Of its tasks; none while it waits for a slot."""
    readings_before: list[TaskReading]
    """Those of the look before."""
    metrics: list[MetricReading]
    """Of users' components."""
    version: int
    """Of its assignment: another one after each move."""
    conf: Mapping[str, Any]
    """Its settings."""


OnSample = Callable[[str, Sample], None]
"""Called with the id of a topology and a look at it."""


class ClusterNow(ClusterStatus):
    """What `squall status --json` shows, and how old it is."""

    away: str
    """Why Nimbus does not answer; empty if it does."""
    age_secs: float


class ComponentRates(Struct):
    """What a component did since the look before."""

    executed_per_sec: float
    emitted_per_sec: float
    acked_per_sec: float
    failed_per_sec: float
    execute_latency_ms: float
    capacity: float


class TopologyRow(Struct):
    """A topology in short."""

    name: str
    id: str
    status: str
    uptime_secs: float
    workers_wanted: int
    workers_ready: int
    tasks: int
    executors: int
    restarts_total: int
    acked: int
    failed: int
    pending: int
    dead_letters: int
    rates: Rates
    latency_ms: Percentiles
    recent_latency_ms: Percentiles


@dataclass(frozen=True, kw_only=True)
class TopologyNow(Status):
    """What `squall status NAME --json` shows, and what was since the look before: rates of components in `recent`,
    latencies in `recent_latency_ms`."""

    at_unix_secs: float
    recent: dict[str, ComponentRates]
    recent_latency_ms: Percentiles


class _Watched(NamedTuple):
    job: Job
    latest: Sample


class Sampler:
    """The newest looks at one cluster."""

    def __init__(self, run_dir: RunDir, on_sample: OnSample = lambda topology_id, sample: None) -> None:
        """`on_sample` is told each look at a topology, by the thread of the sampler."""
        self.run_dir = run_dir
        self._on_sample = on_sample
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._cluster: ClusterStatus | None = None
        self._cluster_at_secs = -float("inf")
        self._away = "not looked at yet"
        self._stop = threading.Event()
        self._client: NimbusClient | None = None
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Make the first look, and go on."""
        self._try_look()
        self._thread.start()

    def close(self) -> None:
        """End the thread and disconnect."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for watched in self._watched.values():
            watched.job.close()
        if self._client is not None:
            self._client.close()

    # ---- what is known ----

    def cluster(self) -> ClusterNow:
        """The cluster. ClusterError if it was never seen."""
        with self._lock:
            if self._cluster is None:
                raise ClusterError(f"the cluster in {self.run_dir.path} does not answer: {self._away}")
            age_secs = time.monotonic() - self._cluster_at_secs
            return ClusterNow(**asdict(self._cluster), away=self._away, age_secs=round(age_secs, 3))

    def names(self) -> list[str]:
        """The topologies, in the order of their submission. ClusterError if the cluster was never seen: none is known,
        which is not that there is none."""
        self.cluster()
        with self._lock:
            return list(self._watched)

    def has(self, name: str) -> bool:
        """Return True if a topology of this name was seen."""
        return name in self._watched

    def latest(self, name: str) -> Sample:
        """The newest look at a topology. Unknown if there is none of this name."""
        with self._lock:
            watched = self._watched.get(name)
        if watched is None:
            raise Unknown(f"there is no topology {name!r:.80}; topologies: {', '.join(self.names()) or 'none'}")
        return watched.latest

    def client(self) -> NimbusClient:
        """The connection to Nimbus, for requests. ClusterError if Nimbus is away."""
        with self._lock:
            if self._client is None:
                self._client = NimbusClient(self.run_dir, timeout_secs=_ASK_SECS)
            return self._client

    # ---- looking ----

    def _run(self) -> None:
        took_secs = 0.0
        while not self._stop.wait(max(INTERVAL_SECS - took_secs, took_secs * (_SHARE - 1))):
            began = time.thread_time()
            self._try_look()
            took_secs = time.thread_time() - began

    def _try_look(self) -> None:
        try:
            self._look_at_all()
            self._away = ""
        except (SquallError, OSError) as error:
            # Nimbus is being restarted, or the cluster has ended: `cluster()` says so.
            self._away = str(error)

    def _look_at_all(self) -> None:
        client = self.client()
        state = client.get_cluster()
        records = {record.name: record for record in state.topologies}
        for record in state.topologies:
            with contextlib.suppress(Gone):  # removed since the answer: the next look does not have it
                self._look_at(client, record)
        looks = [watched.latest.status for watched in self._watched.values()]
        cluster = describe_cluster(client, state, {look.id: look.status for look in looks})
        with self._lock:
            self._cluster, self._cluster_at_secs = cluster, time.monotonic()
            gone = [self._watched.pop(name) for name in set(self._watched) - set(records)]
            self._watched = {name: self._watched[name] for name in records if name in self._watched}
        for watched in gone:
            watched.job.close()

    def _look_at(self, client: NimbusClient, record: TopologyRecord) -> None:
        watched = self._watched.get(record.name)
        if watched is not None and watched.job.id != record.id:
            watched.job.close()
            watched = None
        job, latest = watched or (Job(client, record, time.monotonic() - uptime_secs(record)), None)
        status = describe(job, None if latest is None else latest.status)
        made, view, readings = time.monotonic(), job.view(), job.readings_reported
        sample = Sample(
            time.time(), made, 0.0, status, status, readings, readings, job.metrics_reported,
            0 if view is None else view.assignment.version, job.record.conf,
        )
        if latest is not None:
            secs = made - latest.at_monotonic_secs
            sample = replace(sample, secs=secs, before=latest.status, readings_before=latest.readings)
        with self._lock:
            self._watched[record.name] = _Watched(job, sample)
        self._on_sample(record.id, sample)
