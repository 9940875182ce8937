"""The simulated cluster: time that the test moves, workers that it kills, and the parts that tests feed by hand."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from squall import (
    BasicCollector,
    ClusterError,
    Config,
    Spout,
    Stream,
    Tuple,
    UsageError,
    spout,
)
from squall.engine.api.plan import ExecutorPlan, Plan
from squall.engine.core.executor import TaskCrashed
from squall.testing import AckTracker, FeederSpout, ManualClock, SimulatedCluster
from tests.unit.rig import Does, DoesBasic, chain
from tests.unit.wired import wired


def forward(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
    if tup[0] == "raise":
        raise ValueError("what")
    # What is written down is no subscriber more.
    assert len(collector.emit((tup[0],))) == 1


class Keep(Does):
    """Acks what it kept when it is asked to."""

    ticks = 0

    def __init__(self) -> None:
        super().__init__(lambda bolt, tup: None)

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)
        self.ticks += tup.is_tick
        if tup.is_tick:
            self.collector.ack(self.kept.pop())
        elif tup[0] == "ack":
            while self.kept:
                self.collector.ack(self.kept.pop())

    def cleanup(self) -> None:
        if any(tup[0] == "bad end" for tup in self.kept):
            raise ValueError("cannot clean up")


def cluster_of(feeder: Spout, plan: Plan | None = None, **settings: Any) -> SimulatedCluster:
    topology = wired(
        spout=(feeder, 1), forward=(DoesBasic(forward, ("value",)), 1, "shuffle spout"),
        keep=(Keep(), 1, "shuffle forward"),
    ).build()
    return SimulatedCluster(topology, Config(**settings), plan=plan)


WORKERS = pytest.mark.parametrize("workers", [1, 2, 3])


@WORKERS
def test_what_is_fed_goes_through_and_is_answered(workers: int) -> None:
    feeder = FeederSpout()
    tracker = AckTracker(feeder)
    with cluster_of(feeder, workers=workers) as cluster:
        assert (feeder.feed(("x",)), feeder.feed(("y",), "mine"), feeder.waiting) == (1, "mine", 2)
        cluster.settle()
        assert (feeder.waiting, feeder.unanswered, tracker.take()) == (0, [1, "mine"], (0, 0))
        assert (cluster.pending, cluster.tracked, cluster.quiet, cluster.drained) == (2, 2, True, False)
        feeder.feed(("ack",), None)
        cluster.settle()
        assert (sorted(map(str, feeder.acked)), feeder.failures, feeder.unanswered) == (["1", "mine"], [], [])
        assert (tracker.acks_of(1), tracker.acks_of(2), tracker.take(), tracker.take()) == (1, 0, (2, 0), (0, 0))
        feeder.finish()
        report = cluster.run()
        assert (report.acked, report.drained, report.components["keep"].executed) == (2, True, 3)
        assert cluster.emitted["forward"] == [("x",), ("y",), ("ack",)]
    assert feeder.calls == ["open", "activate", "deactivate", "close"]


def test_time_passes_only_when_it_is_told_to() -> None:
    feeder, clock = FeederSpout(), ManualClock()
    builder = chain(feeder)
    builder.set_bolt("keep", Keep()).shuffle_grouping("spout").set_config(tick_tuple_freq_secs=2)
    with SimulatedCluster(builder.build(), Config(workers=2, message_timeout_secs=10), clock=clock) as cluster:
        feeder.feed(("x",))
        cluster.settle()
        cluster.advance(9.999)
        assert (feeder.failed, cluster.user("keep").ticks) == ([], 4)
        cluster.advance(0.001)
        assert (feeder.failed, cluster.user("keep").ticks) == ([(1, "timeout")], 5)
        began_ns = clock.now_ns()
        cluster.run_until(lambda: cluster.user("keep").ticks == 8)
        assert clock.now_ns() - began_ns == pytest.approx(6e9, abs=2e6)


def test_what_does_not_happen_in_time_is_an_error() -> None:
    with cluster_of(FeederSpout()) as cluster:
        with pytest.raises(ClusterError, match="'simulated': 5 simulated seconds passed before it rains"):
            cluster.run_until(lambda: False, timeout_secs=5, what="it rains")
        assert cluster.report().duration_secs == 5
        with pytest.raises(ClusterError, match="2 simulated seconds passed before it was drained"):
            cluster.run(timeout_secs=2)


def test_a_spout_that_never_runs_dry_can_be_stepped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall.testing.simulated.MAX_BUSY_TURNS", 20)
    with cluster_of(spout("value")(lambda: itertools.repeat("ack"))) as cluster:
        assert cluster.step()
        assert cluster.emitted["spout"]
        for run in (cluster.settle, cluster.run):
            with pytest.raises(ClusterError, match="still busy after 20 turns"):
                run()
        cluster.set_active(False)
        cluster.settle()
        cluster.run_until(lambda: cluster.quiet)


def test_a_killed_workers_tuples_fail_and_its_replacement_takes_over() -> None:
    feeder = FeederSpout()
    with cluster_of(feeder, workers=2, ackers=1) as cluster:
        away = 1 - cluster.plan.task_worker[cluster.plan.tasks_of("spout")[0]]
        name = cluster.plan.worker_names[away]
        [lost, *_] = [name for name in ("forward", "keep") if cluster.plan.tasks_of(name, away)]
        feeder.feed(("x",))
        cluster.settle()
        assert feeder.unanswered == [1]
        cluster.kill(name)
        with pytest.raises(ClusterError, match=f"worker {name} is dead"):
            cluster.user(lost)
        with pytest.raises(ClusterError, match=f"worker {name} is dead already"):
            cluster.kill(away)
        cluster.settle()
        assert feeder.failed == [(1, "worker died")]
        feeder.feed(("x",), 2)
        feeder.feed(("ack",), 3)
        cluster.settle()
        assert 3 not in feeder.acked
        cluster.restart(name)
        assert cluster.core(away).me == away
        cluster.settle()
        assert sorted(feeder.acked) == [2, 3]
        with pytest.raises(ClusterError, match=f"worker {name} lives; kill it first"):
            cluster.restart(name)
        for wrong in ("node-9:1", 2, -1):
            with pytest.raises(UsageError, match=f"no worker {wrong!r}; workers are node-1:6700, node-1:6701, or 0"):
                cluster.kill(wrong)


def scattered(feeder: FeederSpout) -> SimulatedCluster:
    """Spout and last bolt in worker 0, the bolt between them in worker 1."""
    here = [ExecutorPlan("__acker", 1, 1), ExecutorPlan("keep", 3, 3), ExecutorPlan("spout", 4, 4)]
    plan = Plan([here, [ExecutorPlan("forward", 2, 2)]], ["node-1:6700", "node-2:6700"])
    return cluster_of(feeder, plan, workers=2, ackers=1)


def test_what_was_sent_to_a_dead_worker_does_not_reach_its_replacement() -> None:
    feeder = FeederSpout()
    with scattered(feeder) as cluster:
        near = cluster.workers[0]
        assert near is not None
        feeder.feed(("x",))
        near.turn()
        cluster.kill("node-2:6700")
        assert cluster.quiet  # what was under way to it is lost
        cluster.restart("node-2:6700")
        cluster.settle()
        assert cluster.emitted["forward"] == []
        assert feeder.failed == [(1, "worker died")]


def test_what_a_dead_worker_had_sent_arrives_until_its_death_is_known() -> None:
    for known, arrives in ((False, [("x",)]), (True, [])):
        with scattered(FeederSpout()) as cluster:
            near, far = cluster.workers
            assert near is not None
            assert far is not None
            cluster.user("spout").feed(("x",))
            near.turn()
            far.turn()
            cluster.kill(1)
            if known:
                near.follow()
            near.turn()
            assert [tup.values for tup in cluster.user("keep").kept] == arrives


def test_a_spout_whose_worker_dies_is_opened_again() -> None:
    feeder = FeederSpout()
    with cluster_of(feeder) as cluster:
        feeder.feed(("x",))
        cluster.settle()
        cluster.kill(0)
        assert not cluster.drained
        cluster.restart(0)
        cluster.settle()
        assert (feeder.unanswered, feeder.calls) == ([1], ["open", "activate"] * 2)


def end_badly(*own: Exception) -> None:
    feeder = FeederSpout()
    with cluster_of(feeder) as cluster:
        feeder.feed(("bad end",))
        cluster.settle()
        for error in own:
            raise error


def test_what_closing_raises_is_not_swallowed_but_does_not_hide_the_tests_own_error() -> None:
    with pytest.raises(TaskCrashed, match="cannot clean up"):
        end_badly()
    with pytest.raises(KeyError, match="mine"):
        end_badly(KeyError("mine"))


def test_without_a_recorder_nothing_is_kept() -> None:
    with (
        SimulatedCluster(chain(FeederSpout()).build(), record=False) as cluster,
        pytest.raises(UsageError, match="record=False"),
    ):
        assert cluster.emitted


# ---- feeders ----


def test_each_tuple_is_taken_once_by_any_task(tmp_path: Path) -> None:
    feeder = FeederSpout({"default": ("value",), "other": ("value",)}, tmp_path)
    builder = wired(spout=(feeder, 3), keep=(Keep(), 1, "shuffle spout", "shuffle spout/other"))
    with SimulatedCluster(builder.build(), Config(workers=2)) as cluster:
        for number in range(20):
            feeder.feed((number,), stream="other" if number % 2 else "default")
        cluster.settle()
        assert sorted(tup[0] for tup in cluster.user("keep").kept) == list(range(20))
        assert len(cluster.emitted["spout/other"]) == 10
        feeder.feed(("ack",))
        feeder.finish()
        assert cluster.run().emitted == len(feeder.acked) == 21


def test_a_feeder_can_name_the_receiving_task() -> None:
    feeder = FeederSpout({"default": Stream("value", direct=True)})
    with SimulatedCluster(wired(spout=(feeder, 1), keep=(Keep(), 3, "direct spout")).build()) as cluster:
        feeder.feed(("x",), task=cluster.plan.tasks_of("keep")[1])
        cluster.settle()
        assert cluster.user("keep", 1).kept
