"""Metrics of users' components: counters, gauges and histograms, named by each task. And metrics consumers, as in
Storm: a class that is handed what every task did, once in `metrics_interval_secs`.

Guarantees: a task has one metric per name, of one kind, however often it asks for it; counting is exact, and a
histogram's percentile within 1/8 of the true value; metrics of several tasks and incarnations add up.

Relies on: its caller for memory (`Allocate`); a worker gives shared memory, which outlives the worker. Thread: the
task's, for its metrics; the worker's loop reads gauges; a consumer's own, in the topology's first worker.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from squall.engine.errors import ComponentError
from squall.engine.foreign.text import repr_of, text_of_error

log = logging.getLogger("squall.metrics")
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
MAX_NAME_CHARS = 200

# Log-linear buckets: 8 in each power of two from 2**-32 to 2**32; the first bucket is for values of 0 and below.
_STEPS, _LOWEST, _OCTAVES = 8, -32, 64
_BUCKETS = 1 + _STEPS * _OCTAVES
_WORD = 8
_SIZE_BYTES = {COUNTER: _WORD, GAUGE: _WORD, HISTOGRAM: _WORD * (_BUCKETS + 2)}

Allocate = Callable[[str, int, str, str, int], memoryview]
"""(component, task, kind, name, bytes) -> zeroed memory of a new metric."""
ReportError = Callable[[str, int, str], None]
"""(component, task, text of the error)."""


def _on_heap(component: str, task: int, kind: str, name: str, size: int) -> memoryview:
    return memoryview(bytearray(size))


@dataclass(frozen=True)
class MetricReading:
    """Values of one metric of one task at one moment."""

    component: str
    task: int
    kind: str
    name: str
    memory: memoryview
    born: int = 0
    """Greater for a later incarnation of the task's worker."""


class Counter:
    """Counts by integers, up to a total of 2**63 - 1."""

    __slots__ = ("_cell",)

    def __init__(self, memory: memoryview) -> None:
        self._cell = memory.cast("q")

    def inc(self, by: int = 1) -> None:
        """Count one more, or `by` more. TypeError or ValueError if `by` is no integer or the total is out of range."""
        self._cell[0] += by

    @property
    def value(self) -> int:
        return self._cell[0]


class Histogram:
    """Counts numbers in buckets, for their distribution."""

    __slots__ = ("_counts", "_sums")

    def __init__(self, memory: memoryview) -> None:
        self._counts = memory[: _WORD * _BUCKETS].cast("q")
        self._sums = memory[_WORD * _BUCKETS :].cast("d")

    def update(self, value: float) -> None:
        """Count one value. Values of 0 and below share a bucket. ComponentError or TypeError if it is no finite
        number."""
        self._counts[bucket_of(value)] += 1
        sums = self._sums
        sums[0] += value
        if value > sums[1]:
            sums[1] = value

    def buckets(self) -> list[int]:
        return self._counts.tolist()

    @property
    def total(self) -> float:
        return self._sums[0]

    @property
    def largest(self) -> float:
        """Largest value; 0.0 if none was above 0."""
        return self._sums[1]


def bucket_of(value: float) -> int:
    """Return the bucket that counts `value`. ComponentError if it is not finite."""
    if not math.isfinite(value):
        raise ComponentError(f"a histogram cannot take {repr_of(value)}; allowed: finite numbers")
    if value <= 0:
        return 0
    fraction, exponent = math.frexp(value)
    index = 1 + (exponent - _LOWEST) * _STEPS + int((fraction - 0.5) * 2 * _STEPS)
    return min(max(index, 1), _BUCKETS - 1)


def bucket_bounds(index: int) -> tuple[float, float]:
    """Smallest value counted in bucket `index`, and the smallest one past it."""
    if index == 0:
        return 0.0, 0.0
    octave, step = divmod(index - 1, _STEPS)
    unit = math.ldexp(1 / (2 * _STEPS), octave + _LOWEST)
    return (step + _STEPS) * unit, (step + _STEPS + 1) * unit


def percentile(
    buckets: Sequence[int], fraction: float, bounds: Callable[[int], tuple[float, float]] = bucket_bounds
) -> float:
    """The value that `fraction` (0..1] of the counted values do not exceed; 0.0 if there are none. `bounds`: the
    smallest value of a bucket, and the smallest one past it."""
    rank = max(1.0, fraction * sum(buckets))
    seen = 0
    for index, count in enumerate(buckets):
        if count and seen + count >= rank:
            low, high = bounds(index)
            return low + (high - low) * (rank - seen) / count
        seen += count
    return 0.0


class UserMetrics:
    """All metrics of one worker."""

    def __init__(self, allocate: Allocate = _on_heap) -> None:
        self._allocate = allocate
        self._metrics: dict[tuple[str, int, str], tuple[str, memoryview, Any]] = {}
        self._gauges: dict[tuple[str, int, str], Callable[[], float]] = {}

    def counter(self, component: str, task: int, name: str) -> Counter:
        found: Counter = self._of(component, task, COUNTER, name, Counter)
        return found

    def histogram(self, component: str, task: int, name: str) -> Histogram:
        found: Histogram = self._of(component, task, HISTOGRAM, name, Histogram)
        return found

    def gauge(self, component: str, task: int, name: str, read: Callable[[], float]) -> None:
        self._of(component, task, GAUGE, name, lambda memory: memory.cast("d"))
        self._gauges[component, task, name] = read

    def _of(self, component: str, task: int, kind: str, name: str, make: Callable[[memoryview], Any]) -> Any:
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
            raise ComponentError(
                f"{component}[{task}] names a {kind} {repr_of(name)}; allowed: 1 to {MAX_NAME_CHARS} printable "
                "characters"
            )
        key = component, task, name
        known = self._metrics.get(key)
        if known is None:
            memory = self._allocate(component, task, kind, name, _SIZE_BYTES[kind])
            known = self._metrics[key] = kind, memory, make(memory)
        if known[0] != kind:
            raise ComponentError(f"{component}[{task}] has a {known[0]} {name!r}; it cannot be a {kind} as well")
        return known[2]

    def sample(self, report: ReportError) -> None:
        """Read every gauge. One that raises is reported and not read again. Thread: the worker's loop."""
        for key, read in list(self._gauges.items()):
            try:
                self._metrics[key][2][0] = float(read())
            except BaseException as error:
                del self._gauges[key]
                report(key[0], key[1], text_of_error(error))

    def readings(self) -> list[MetricReading]:
        return [
            MetricReading(component, task, kind, name, memory)
            for (component, task, name), (kind, memory, _) in self._metrics.items()
        ]


_Value = Annotated[object, msgspec.Meta(extra_json_schema={
    "type": ["number", "object", "null"], "additionalProperties": {"type": ["number", "null"]},
})]
Metrics = dict[str, dict[str, _Value]]
"""Component -> metric -> value: a number for a counter; a number per task for a gauge; count, mean, p50, p90, p99 and
max for a histogram."""


def summarise(readings: Iterable[MetricReading]) -> Metrics:
    """Merge the readings of all tasks and incarnations. For a gauge, the newest incarnation of each task counts."""
    groups: dict[tuple[str, str, str], list[MetricReading]] = {}
    for reading in readings:
        groups.setdefault((reading.component, reading.name, reading.kind), []).append(reading)
    metrics: Metrics = {}
    for (component, name, kind), group in sorted(groups.items()):
        value: object
        if kind == COUNTER:
            value = sum(Counter(reading.memory).value for reading in group)
        elif kind == GAUGE:
            newest = sorted(group, key=lambda reading: reading.born)
            value = {reading.task: reading.memory.cast("d")[0] for reading in newest}
        else:
            value = _merged([Histogram(reading.memory) for reading in group])
        metrics.setdefault(component, {})[name] = value
    return metrics


def _merged(histograms: list[Histogram]) -> dict[str, float]:
    buckets = [sum(counts) for counts in zip(*(histogram.buckets() for histogram in histograms), strict=True)]
    count = sum(buckets)
    largest = max(histogram.largest for histogram in histograms)
    merged = {"count": count, "mean": sum(histogram.total for histogram in histograms) / count if count else 0.0}
    for percent in (50, 90, 99):
        merged[f"p{percent}"] = min(largest, percentile(buckets, percent / 100))
    return merged | {"max": largest}


# ---- metrics consumers ----


@dataclass(frozen=True)
class TaskInfo:
    """The task that data points are of."""

    src_component_id: str
    """Its component."""
    src_task_id: int
    """The task."""
    src_worker_host: str
    """The node of its worker."""
    src_worker_port: int
    """The port of its worker."""
    timestamp: int
    """Seconds since 1970."""
    update_interval_secs: float
    """The setting `metrics_interval_secs`."""


@dataclass(frozen=True)
class DataPoint:
    """One metric of a task: what was counted in the interval, a gauge's number, or a histogram's mean and count."""

    name: str
    """Storm's name of a count, such as `__execute-count`, or that of a metric of yours."""
    value: Any
    """A number; of a histogram, a dict with its `count` and `mean`."""


class MetricsConsumer:
    """Is handed metrics. Name the class in the setting `metrics_consumers`."""

    def prepare(self, conf: Mapping[str, Any], argument: Any, context: Mapping[str, Any]) -> None:
        """Called once, with the topology's settings, the `argument` of the setting, and the topology's `name`, `id` and
        the `worker` that it runs in."""

    def handle_data_points(self, task_info: TaskInfo, data_points: Sequence[DataPoint]) -> None:
        """Called for each task in each interval."""

    def cleanup(self) -> None:
        """Called at the end, unless the worker is killed."""


class LoggingMetricsConsumer(MetricsConsumer):
    """Writes a line to the log for each data point."""

    def handle_data_points(self, task_info: TaskInfo, data_points: Sequence[DataPoint]) -> None:
        where = f"{task_info.src_worker_host}:{task_info.src_worker_port}"
        task = f"{task_info.src_component_id}[{task_info.src_task_id}]"
        for point in data_points:
            log.info("%d\t%s\t%s\t%s\t%s", task_info.timestamp, where, task, point.name, point.value)
