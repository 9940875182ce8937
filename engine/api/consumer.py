"""Metrics consumers, as in Storm: a class that is handed what every task did, once in `metrics_interval_secs`.

Thread: a consumer's own, in the topology's first worker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

log = logging.getLogger("squall.metrics")


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
