"""The life of components on real workers: inactive submission, activation, errors, ticks on threads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from squall import (
    BasicBolt,
    BasicCollector,
    ClusterError,
    Config,
    Job,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from squall.testing import FeederSpout
from tests.process.conftest import SharedCluster
from tests.process.parts import note, notes
from tests.process.waiting import wait_for


class Notes(BasicBolt):
    """Notes where it is prepared, and ticks; passes on what comes."""

    outputs = ("value",)

    def __init__(self, directory: Path, blocking: bool) -> None:
        self.directory = str(directory)
        self.blocking = blocking

    def prepare(self, conf: Any, context: TopologyContext) -> None:
        self.context = context
        note(self.directory, "prepared", context.component_id)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup.is_tick:
            note(self.directory, "ticks", self.context.worker)
            return
        if tup[0] == "report":
            collector.report_error(ValueError("something odd"))
        collector.emit(tup.values)


def topology(feeder: FeederSpout, directory: Path) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("spout", feeder)
    waits = builder.set_bolt("waits", Notes(directory, blocking=True), parallelism=2, tasks=4).all_grouping("spout")
    waits.set_config(tick_tuple_freq_secs=0.02)
    builder.set_bolt("works", Notes(directory, blocking=False), parallelism=1, tasks=2).all_grouping("waits")
    return builder


def test_inactive_at_first_and_who_replaces_a_worker_is_as_inactive(
    shared_cluster: SharedCluster, tmp_path: Path
) -> None:
    """Storm's testSubmitInactiveTopology, but that tasks are opened at once: a topology whose `open` fails is known to
    be wrong when it is submitted, and activation does not wait for it."""
    feeder = FeederSpout(directory=tmp_path)
    feeder.feed(("x",))
    builder = topology(feeder, tmp_path)
    job = shared_cluster.submit("inactive", builder.build(), Config(workers=2), active=False)
    job.wait_until_ready(60)
    assert sorted(notes(tmp_path, "prepared")) == ["waits"] * 4 + ["works"] * 2
    wait_for("idle workers", job.is_idle)
    assert (feeder.calls, feeder.waiting) == (["open"], 1)
    with pytest.raises(ClusterError, match=r"0 acked of 0 emitted;.* not every spout is exhausted$"):
        job.wait_until_drained(0)
    job.activate()
    wait_for("the ack", lambda: feeder.acked == [1])
    assert feeder.calls == ["open", "activate"]
    feeder.feed(("report",))
    wait_for("another ack", lambda: feeder.acked == [1, 2])
    # Four tasks on threads of their own, and two that each of those sent it to. Workers publish counts a moment later.
    errors = {"spout": 0, "waits": 4, "works": 8}
    wait_for("all errors", lambda: {name: each.errors for name, each in job.stats().components.items()} == errors)
    job.deactivate()
    wait_for("the callback", lambda: feeder.calls[-1] == "deactivate")
    feeder.feed(("y",))
    for worker in job.stats().workers:
        shared_cluster.inject("kill", worker)
    wait_for("the replacement", lambda: feeder.calls == ["open", "activate", "deactivate", "open"])
    job.wait_until_ready(60)
    await_turns(job, tmp_path)
    assert (feeder.waiting, feeder.calls[3:]) == (1, ["open"])
    job.activate()
    wait_for("the last ack", lambda: feeder.acked == [1, 2, 3])
    job.kill(0.0)
    assert feeder.calls[3:] == ["open", "activate", "deactivate", "close"]


def await_turns(job: Job, directory: Path) -> None:
    """Wait until the loop of each worker has gone round at least once from now on."""
    before = Counter(notes(directory, "ticks"))

    def have_turned() -> bool:
        ticks = Counter(notes(directory, "ticks"))
        return all(ticks[worker] >= before[worker] + 2 for worker in job.stats().workers)

    wait_for("workers to turn", have_turned)
