"""Topologies on two workers that are skewed: one slow task, one slow worker, one frequent key; and one that is slow
throughout.

All that their bolts do is sleep, so the number of processors does not matter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from squall import (
    BasicBolt,
    BasicCollector,
    Config,
    Job,
    LocalCluster,
    Spout,
    SpoutCollector,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from squall.engine.report.metrics import merge, percentile_ms

WORKERS = 2
PENDING = 2048
"""The limit beside the one that is found: the default of earlier versions."""
WARM_UP_SECS = 1.5
"""By then a slow task holds so many of the open messages that the others wait for it."""


class Numbers(Spout):
    """Emits numbers without an end."""

    outputs = ("number",)

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.next = collector, 0

    def next_tuple(self) -> None:
        self.collector.emit((self.next,), message_id=self.next)
        self.next += 1


class Works(BasicBolt):
    """Takes `ms` for each tuple, its first task `slow_ms`; emits a key that is the same for `hot` of ten tuples."""

    outputs = ("key",)

    def __init__(self, ms: float, slow_ms: float | None = None, hot: int = 0) -> None:
        self.ms, self.slow_ms, self.hot = ms, slow_ms, hot

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        slow = self.slow_ms is not None and context.task_index == 0
        self.secs = (self.slow_ms if slow and self.slow_ms is not None else self.ms) / 1000

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        time.sleep(self.secs)
        number = tup[0]
        collector.emit((0 if hash(number) % 10 < self.hot else number,))


def works(tasks: int, *arguments: Any, **named: Any) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("works", Works(*arguments, **named), parallelism=tasks).shuffle_grouping("numbers")
    return builder.build()


def frequent_key() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("works", Works(1.0, hot=9), parallelism=4).shuffle_grouping("numbers")
    builder.set_bolt("counts", Works(1.0), parallelism=2).fields_grouping("works", "key")
    return builder.build()


class Figures(NamedTuple):
    per_sec: float
    p50_ms: float


class Case(NamedTuple):
    name: str
    topology: Callable[[], Topology]
    off: Mapping[str, Any]
    """The settings that turn off what is shown."""
    slow_worker: bool = False


CASES = (
    Case("one task of 4 takes 20 ms a tuple, the others 1 ms", lambda: works(4, 1.0, 20.0), {"even_shuffle": True}),
    Case("one worker of 2 may run for a tenth of the time", lambda: works(4, 1.0), {"even_shuffle": True}, True),
    Case("nine tuples of 10 have one key behind a shuffle", frequent_key, {"even_shuffle": True}),
    Case("every tuple takes 5 ms", lambda: works(4, 5.0), {"max_spout_pending": PENDING}),
)


def measure(cluster: LocalCluster, case: Case, settings: Mapping[str, Any], secs: float) -> Figures:
    """Run one topology on two slots; its figures of so many seconds after the warm-up."""
    config = Config(workers=WORKERS, message_timeout_secs=600, **settings)
    job = cluster.submit("balance", case.topology(), config, active=False, fresh=True)
    job.wait_until_ready(timeout=30)
    if case.slow_worker:
        cluster.inject("throttle", "node-1:6701", share=0.1, for_secs=60)
    job.activate()
    time.sleep(WARM_UP_SECS)
    began, acked, histogram = time.perf_counter(), job.stats().acked, latencies(job)
    time.sleep(secs)
    took_secs, acks = time.perf_counter() - began, job.stats().acked - acked
    took = [now - before for now, before in zip(latencies(job), histogram, strict=True)]
    cluster.heal()
    job.kill(wait_secs=0)
    return Figures(acks / took_secs, percentile_ms(took, 0.5))


def latencies(job: Job) -> list[int]:
    return merge(reading.histogram for reading in job.readings() if reading.kind == "spout")
