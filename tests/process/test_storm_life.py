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
    SpoutCollector,
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


def test_inactive_at_first(shared_cluster: SharedCluster, tmp_path: Path) -> None:
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


def test_who_replaces_a_worker_is_as_inactive(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    feeder = FeederSpout(directory=tmp_path)
    job = shared_cluster.submit("life", topology(feeder, tmp_path).build(), Config(workers=2))
    wait_for("activation", lambda: feeder.calls == ["open", "activate"])
    job.deactivate()
    wait_for("the callback", lambda: feeder.calls[-1] == "deactivate")
    feeder.feed(("x",))
    for worker in job.stats().workers:
        shared_cluster.inject("kill", worker)
    wait_for("the replacement", lambda: feeder.calls == ["open", "activate", "deactivate", "open"])
    job.wait_until_ready(60)
    await_turns(job, tmp_path)
    assert (feeder.waiting, feeder.calls[3:]) == (1, ["open"])
    job.activate()
    wait_for("the ack", lambda: feeder.acked == [1])
    job.kill(0.0)
    assert feeder.calls[3:] == ["open", "activate", "deactivate", "close"]


class Complains(FeederSpout):
    """Reports an error for each answer."""

    def open(self, conf: Any, context: TopologyContext, collector: SpoutCollector) -> None:
        super().open(conf, context, collector)
        self.report_error = collector.report_error

    def ack(self, message_id: Any) -> None:
        self.report_error(KeyError("from the spout"))
        super().ack(message_id)


def test_reported_errors_are_counted_and_in_the_log_whoever_reports_them(
    shared_cluster: SharedCluster, tmp_path: Path
) -> None:
    feeder = Complains(directory=tmp_path)
    job = shared_cluster.submit("reports", topology(feeder, tmp_path).build(), Config(workers=2))
    feeder.feed(("report",))
    feeder.finish()
    report = job.wait_until_drained(90)
    # Four tasks on threads of their own, and two that each of those sent it to.
    assert {name: component.errors for name, component in report.components.items()} == {
        "spout": 1, "waits": 4, "works": 8,
    }
    assert (report.acked, report.failed, report.restarts) == (1, 0, [])
    texts: set[str] = set()

    def logged() -> bool:
        told = [line.partition("]: ")[2] for _, line in shared_cluster.new_log_lines() if "error reported by " in line]
        # The second of equal ones, the fourth ... is told with its number.
        texts.update(text.partition(" (")[0] for text in told)
        return texts == {"ValueError: something odd", "KeyError: 'from the spout'"}

    wait_for("the log", logged)


def await_turns(job: Job, directory: Path) -> None:
    """Wait until the loop of each worker has gone round at least once from now on."""
    before = Counter(notes(directory, "ticks"))

    def have_turned() -> bool:
        ticks = Counter(notes(directory, "ticks"))
        return all(ticks[worker] >= before[worker] + 2 for worker in job.stats().workers)

    wait_for("workers to turn", have_turned)
