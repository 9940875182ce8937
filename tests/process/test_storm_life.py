"""The life of components on real workers: inactive submission, activation, threads, several tasks of an executor."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from ipc.board import SLOT_HEARTBEAT_NS
from squall import BasicBolt, BasicCollector, Config, Job, LocalCluster, TopologyBuilder, TopologyContext, Tuple
from squall.testing import FeederSpout
from tests.process.parts import note, notes
from tests.process.waiting import wait_for


class Threads(BasicBolt):
    """Notes (component, task index, thread) of each tuple."""

    outputs = ("value",)

    def __init__(self, directory: Path, blocking: bool) -> None:
        self.directory = str(directory)
        self.blocking = blocking

    def prepare(self, conf: Any, context: TopologyContext) -> None:
        self.context = context
        note(self.directory, "prepared", context.component_id)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        thread = threading.current_thread()
        kind = "main" if thread is threading.main_thread() else thread.name
        note(self.directory, "threads", [self.context.component_id, self.context.task_index, kind])
        collector.emit(tup.values)


def topology(feeder: FeederSpout, directory: Path) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("spout", feeder)
    builder.set_bolt("waits", Threads(directory, blocking=True), parallelism=2, tasks=4).all_grouping("spout")
    builder.set_bolt("works", Threads(directory, blocking=False), parallelism=1, tasks=2).all_grouping("waits")
    return builder


def test_inactive_at_first(squall_cluster: LocalCluster, tmp_path: Path) -> None:
    """Storm's testSubmitInactiveTopology, but that tasks are opened at once: a topology whose `open` fails is known to
    be wrong when it is submitted, and activation does not wait for it."""
    feeder = FeederSpout(directory=tmp_path)
    feeder.feed(("x",))
    builder = topology(feeder, tmp_path)
    job = squall_cluster.submit("inactive", builder.build(), Config(workers=2), active=False)
    job.wait_until_ready(20)
    assert sorted(notes(tmp_path, "prepared")) == ["waits"] * 4 + ["works"] * 2
    wait_for("idle workers", job.is_idle)
    assert (feeder.calls, feeder.waiting) == (["open"], 1)
    job.activate()
    wait_for("the ack", lambda: feeder.acked == [1])
    assert feeder.calls == ["open", "activate"]


def test_activate_and_deactivate_are_told_and_obeyed(squall_cluster: LocalCluster, tmp_path: Path) -> None:
    feeder = FeederSpout(directory=tmp_path)
    job = squall_cluster.submit("life", topology(feeder, tmp_path).build(), Config(workers=2))
    for round_ in (1, 2):
        feeder.feed(("x",), round_)
        wait_for("the ack", lambda: round_ in feeder.acked)  # noqa: B023
        job.deactivate()
        wait_for("the callback", lambda: feeder.calls[-1] == "deactivate")
        feeder.feed(("y",), -round_)
        before = heartbeats(job)
        wait_for("the workers to turn idly", lambda: not set(before) & set(heartbeats(job)))  # noqa: B023
        assert (feeder.waiting, feeder.unanswered) == (1, [-round_])
        job.activate()
        wait_for("the ack", lambda: -round_ in feeder.acked)  # noqa: B023
    job.kill(0.0)
    assert feeder.calls == ["open", *["activate", "deactivate"] * 2, "activate", "deactivate", "close"]
    assert feeder.failures == []


def heartbeats(job: Job) -> list[int]:
    """They go on while nothing happens."""
    view = job._view()
    assert view is not None
    board, _ = view
    return [board.words[board.slot_at(slot) + SLOT_HEARTBEAT_NS] for slot in range(board.n_slots)]


def test_blocking_executors_have_a_thread_each_and_tasks_share_it(
    squall_cluster: LocalCluster, tmp_path: Path
) -> None:
    feeder = FeederSpout(directory=tmp_path)
    job = squall_cluster.submit("threads", topology(feeder, tmp_path).build(), Config(workers=1))
    feeder.feed(("x",))
    feeder.finish()
    job.wait_until_drained(20)
    seen = {(component, index): thread for component, index, thread in notes(tmp_path, "threads")}
    assert {seen["works", index] for index in range(2)} == {"main"}
    waits = [seen["waits", index] for index in range(4)]
    # Tasks 0 and 1 are one executor's, 2 and 3 another's.
    assert waits[0] == waits[1] != waits[2] == waits[3]
    assert all(thread.startswith("waits[") for thread in waits)
    assert feeder.acked == [1]
