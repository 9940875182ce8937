"""Every metric of a cluster, by name, with its labels, as of the latest looks at it; and /metrics, which gives them to
Prometheus.

Guarantees
    * Names carry their unit. `FAMILIES` has all of them but users' own, which begin with `squall_user_`.
    * At most MOST_SERIES series, users' last; `squall_series_left_out` says how many more there were.
    * Counters of tasks carry the number of the assignment: a task that moves to another worker takes its counts along,
      which thus begin a new series instead of making another one jump.

Thread: any.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, NamedTuple

import psutil
from fastapi import APIRouter, Header, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from squall.engine.api import user_metrics
from squall.engine.api.user_metrics import COUNTER, GAUGE, HISTOGRAM
from squall.engine.errors import ClusterError
from squall.engine.report.metrics import bucket_bounds
from squall.engine.report.run_report import TaskReading
from squall.scheduler.client.described import daemon_process
from squall.scheduler.common.daemon import read_deaths
from squall.ui.cluster_api import ClusterApi
from squall.ui.history import row_of
from squall.ui.sampler import Sample

MOST_SERIES = 20_000
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets of latencies."""
POWERS = tuple(2.0**power for power in range(-10, 31, 2))
"""Those of users' histograms, whose unit is unknown: each four times the one before."""


class Distribution(NamedTuple):
    """A histogram: observations in each bucket, the last one without a bound; and the sum of all."""

    bounds: tuple[float, ...]
    counts: list[int]
    total: float

    def cumulative(self) -> list[int]:
        return list(accumulate(self.counts))


@dataclass
class Family:
    """One metric and its series."""

    name: str
    kind: str
    """Of `engine.api.user_metrics`."""
    help: str
    labels: tuple[str, ...]
    series: dict[tuple[str, ...], float | Distribution] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Series as Prometheus counts them: a histogram has one for each bucket, its count and its sum."""
        return sum(len(each.counts) + 2 if isinstance(each, Distribution) else 1 for each in self.series.values())


_TASKS = ("topology", "component", "worker", "assignment")
_WORKER = ("topology", "worker")
_TABLE = (
    ("nimbus_up", GAUGE, "1 if Nimbus answers", ()),
    ("slots", GAUGE, "worker slots by state: free or used", ("state",)),
    ("refused_frames_total", COUNTER, "control frames that Nimbus refused", ()),
    ("daemon_deaths_total", COUNTER, "deaths of a daemon", ("daemon",)),
    ("daemon_resident_memory_bytes", GAUGE, "memory of a daemon", ("daemon",)),
    ("daemon_cpu_seconds_total", COUNTER, "CPU time of a daemon's process; a new process begins anew", ("daemon",)),
    ("topology_info", GAUGE, "1; the labels say which topology has the name now", ("topology", "id", "status")),
    ("topology_uptime_seconds", GAUGE, "time since the submission", ("topology",)),
    ("pending_messages", GAUGE, "messages under way", ("topology",)),
    ("waiting_messages", GAUGE, "failed messages that spouts hold for a retry", ("topology",)),
    ("dead_letters_total", COUNTER, "messages that were given up", ("topology",)),
    ("worker_deaths_total", COUNTER, "deaths of a topology's workers", ("topology",)),
    ("complete_latency_seconds", HISTOGRAM, "time from the emit of a message to its ack", ("topology", "component")),
    ("worker_up", GAUGE, "1 if the worker is ready", _WORKER),
    ("worker_resident_memory_bytes", GAUGE, "memory of a worker", _WORKER),
    ("worker_cpu_seconds_total", COUNTER, "CPU time of a worker's process; a new process begins anew", _WORKER),
    ("worker_held_bytes", GAUGE, "memory that the queues of a worker hold, about", _WORKER),
    ("emitted_tuples_total", COUNTER, "tuples that were emitted", _TASKS),
    ("transferred_tuples_total", COUNTER, "tuples that were sent, one for each task that got it", _TASKS),
    ("executed_tuples_total", COUNTER, "tuples that were executed", _TASKS),
    ("execute_seconds_total", COUNTER, "time spent in execute", _TASKS),
    ("acked_tuples_total", COUNTER, "tuples, of a spout messages, that were acked", _TASKS),
    ("failed_tuples_total", COUNTER, "tuples, of a spout messages, that failed", _TASKS),
    ("errors_total", COUNTER, "errors of users' code", _TASKS),
    ("queued_tuples", GAUGE, "tuples that wait for a task", _TASKS),
    ("series_left_out", GAUGE, "series that are not given, because there are too many", ()),
)
FAMILIES = {f"squall_{name}": (kind, text, labels) for name, kind, text, labels in _TABLE}


def families(api: ClusterApi, most: int = MOST_SERIES) -> list[Family]:
    """Everything that is measured now. ClusterError if the cluster was never seen."""
    known = {name: Family(name, *rest) for name, rest in FAMILIES.items()}
    _cluster(api, known)
    users: dict[str, Family] = {}
    for name in api.sampler.names():
        sample = api.sampler.latest(name)
        _topology(sample, known)
        _users(sample, users)
    left_out = known.pop("squall_series_left_out")
    kept: list[Family] = []
    room, missing = most, 0
    for family in (*known.values(), *users.values()):
        while family.size > room:
            family.series.popitem()
            missing += 1
        room -= family.size
        kept.append(family)
    left_out.series[()] = missing
    return [*kept, left_out]


def _cluster(api: ClusterApi, known: dict[str, Family]) -> None:
    cluster = api.cluster()
    free, slots = len(cluster.free_slots), sum(map(len, cluster.nodes.values()))
    known["squall_nimbus_up"].series[()] = float(not cluster.away)
    known["squall_slots"].series |= {("free",): free, ("used",): slots - free}
    known["squall_refused_frames_total"].series[()] = cluster.refused_frames
    deaths = Counter[str]()
    for name in ("nimbus", "keeper", *(f"supervisor-{node}" for node in cluster.nodes)):
        deaths[name] = 0
        if (record := daemon_process(api.run_dir, name)) is not None:
            _process(record.pid, "daemon", (name,), known)
    deaths.update(death.daemon.replace(" ", "-") for death in read_deaths(api.run_dir))
    known["squall_daemon_deaths_total"].series |= {(name,): count for name, count in deaths.items()}


def _process(pid: int, what: str, labels: tuple[str, ...], known: dict[str, Family]) -> None:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            rss, times = process.memory_info().rss, process.cpu_times()
    except psutil.Error:
        return  # it has ended meanwhile
    known[f"squall_{what}_resident_memory_bytes"].series[labels] = rss
    known[f"squall_{what}_cpu_seconds_total"].series[labels] = times.user + times.system


def _topology(sample: Sample, known: dict[str, Family]) -> None:
    status, name = sample.status, sample.status.name
    known["squall_topology_info"].series[name, status.id, status.status] = 1
    for metric, key in (
        ("topology_uptime_seconds", "uptime_secs"), ("pending_messages", "pending"), ("waiting_messages", "waiting"),
        ("dead_letters_total", "dead_letters"), ("worker_deaths_total", "restarts_total"),
    ):
        known[f"squall_{metric}"].series[(name,)] = getattr(status, key)
    for worker in status.workers:
        labels = (name, worker.worker)
        known["squall_worker_up"].series[labels] = float(worker.state == "ready")
        known["squall_worker_held_bytes"].series[labels] = worker.held_bytes
        if worker.uptime_secs is not None:
            _process(worker.pid, "worker", labels, known)
    _components(sample, name, known)


def _components(sample: Sample, name: str, known: dict[str, Family]) -> None:
    groups: dict[tuple[str, str], list[TaskReading]] = {}
    for reading in sample.readings:
        groups.setdefault((reading.component, reading.worker), []).append(reading)
    for (component, worker), readings in groups.items():
        labels = (name, component, worker, str(sample.version))
        for metric, counter in (
            ("emitted_tuples_total", "emitted"), ("transferred_tuples_total", "transferred"),
            ("executed_tuples_total", "executed"), ("acked_tuples_total", "acked"), ("failed_tuples_total", "failed"),
            ("errors_total", "errors"), ("queued_tuples", "in_queue"),
        ):
            known[f"squall_{metric}"].series[labels] = sum(reading.counters[counter] for reading in readings)
        busy_ns = sum(reading.counters["execute_ns"] for reading in readings)
        known["squall_execute_seconds_total"].series[labels] = busy_ns / 1e9
    moment = row_of(sample)
    for component in moment.spouts:
        middles = {
            sum(bucket_bounds(bucket)) / 2e6: count for bucket, count in moment.components[component].latencies.items()
        }
        total = sum(middle * count for middle, count in middles.items())
        known["squall_complete_latency_seconds"].series[name, component] = _distribution(middles, SECONDS, total)


def _distribution(middles: Mapping[float, int], bounds: tuple[float, ...], total: float) -> Distribution:
    """Put fine buckets, by their middles, into coarse ones."""
    counts = [0] * (len(bounds) + 1)
    for middle, count in middles.items():
        counts[bisect_left(bounds, middle)] += count
    return Distribution(bounds, counts, total)


def _users(sample: Sample, users: dict[str, Family]) -> None:
    topology = sample.status.name
    for component, name, kind, readings in _groups(sample):
        clean = re.sub("[^a-zA-Z0-9_]", "_", name)
        suffix = {COUNTER: "_total", GAUGE: "", HISTOGRAM: "_distribution"}[kind]
        # The name as it was given is a label, for two may become one.
        labels: tuple[str, ...] = ("topology", "component", "name", *(("task",) if kind == GAUGE else ()))
        family = users.setdefault(
            f"squall_user_{clean}{suffix}", Family(f"squall_user_{clean}{suffix}", kind, f"users' {kind}", labels)
        )
        key = (topology, component, name)
        if kind == COUNTER:
            family.series[key] = sum(user_metrics.Counter(reading.memory).value for reading in readings)
        elif kind == GAUGE:
            for reading in sorted(readings, key=lambda reading: reading.born):
                family.series[*key, str(reading.task)] = reading.memory.cast("d")[0]
        else:
            several = [user_metrics.Histogram(reading.memory) for reading in readings]
            counts = [sum(column) for column in zip(*(one.buckets() for one in several), strict=True)]
            fine = {sum(user_metrics.bucket_bounds(at)) / 2: count for at, count in enumerate(counts) if count}
            family.series[key] = _distribution(fine, POWERS, sum(one.total for one in several))


def _groups(sample: Sample) -> Iterator[tuple[str, str, str, list[user_metrics.MetricReading]]]:
    """Component, name, kind and readings of each of users' metrics."""
    groups: dict[tuple[str, str, str], list[user_metrics.MetricReading]] = {}
    for reading in sample.metrics:
        groups.setdefault((reading.component, reading.name, reading.kind), []).append(reading)
    for (component, name, kind), readings in sorted(groups.items()):
        yield component, name, kind, readings


class ClusterCollector(Collector):
    """The families of a cluster, anew at each scrape."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api

    def collect(self) -> Iterator[Metric]:
        return map(_metric, families(self._api))


def _metric(family: Family) -> Metric:
    if family.kind == HISTOGRAM:
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, value in family.series.items():
            assert isinstance(value, Distribution)
            bounds = [*map(str, value.bounds), "+Inf"]
            histogram.add_metric(labels, list(zip(bounds, value.cumulative(), strict=True)), value.total)
        return histogram
    kind = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in family.series.items():
        assert not isinstance(value, Distribution)
        metric.add_metric(labels, value)
    return metric


def metrics_router(api: ClusterApi) -> APIRouter:
    """The route /metrics."""
    router = APIRouter(include_in_schema=False)
    registry = CollectorRegistry()
    registry.register(ClusterCollector(api))

    @router.get("/metrics")
    def metrics(accept: Annotated[str, Header()] = "") -> Response:
        encode, content_type = choose_encoder(accept)
        try:
            return Response(encode(registry), media_type=content_type)
        except ClusterError as error:
            return PlainTextResponse(str(error), 503)

    return router
