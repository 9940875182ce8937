"""A topology that counts the records of a source in its state, and the deaths of its workers."""

from __future__ import annotations

import contextlib
from typing import Any

from squall import (
    BasicCollector,
    ClusterError,
    Job,
    LocalCluster,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    UsageError,
)
from squall.connect import Sink, Source
from tests.process.waiting import wait_for


class Count(StatefulBolt):
    """How often it saw each value of a field."""

    def __init__(self, field: str) -> None:
        self.field = field

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        value = tup[self.field]
        self.state[value] = self.state.get(value, 0) + 1


def counted(source: Source, tasks: int = 2, sink: Sink | None = None, field: str = "value") -> Topology:
    """`sink` is given the records, too."""
    builder = TopologyBuilder()
    builder.set_spout("in", source, parallelism=tasks)
    builder.set_bolt("count", Count(field), parallelism=tasks).fields_grouping("in", field)
    if sink is not None:
        builder.set_bolt("out", sink, parallelism=tasks).shuffle_grouping("in")
    return builder.build()


def counts(job: Job) -> dict[Any, int]:
    """The state, once there is one."""
    with contextlib.suppress(UsageError, ClusterError):
        return dict(job.state("count"))
    return {}


def kill_each_worker(job: Job, cluster: LocalCluster) -> None:
    """One after the other, each once the one before is back."""
    for worker in (6700, 6701):
        before = len(job.stats().restarts)
        cluster.inject("kill", f"node-1:{worker}")
        wait_for("its successor", lambda before=before: len(job.stats().restarts) > before  # type: ignore[misc]
                 and all(one.ready_after_secs is not None for one in job.stats().restarts))
