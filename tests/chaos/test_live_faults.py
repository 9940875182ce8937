"""Faults in one running cluster, one after the other: each is seen to bite, and to end; nothing is lost by them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from squall import BasicBolt, Config, Spout, spout
from squall.scheduler.client.job import Job
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.common import process
from squall.scheduler.common.role import processes_of
from squall.scheduler.faults.in_force import KEPT_SECS, FaultInForce, faults_now, read_record
from tests.process.waiting import wait_for
from tests.unit.wired import wired


def numbers_until(stop: Path) -> Spout:
    """Numbers below a thousand, over and over, until a file is there."""
    return spout("n")(lambda: itertools.takewhile(lambda n: n % 100 or not stop.exists(), itertools.cycle(range(1000))))


def hours_ahead() -> float:
    """How far a fault has set the clock; half as much if it has set one of two."""
    return round(((time.time() + time.time_ns() / 1e9) / 2 - time.clock_gettime(time.CLOCK_REALTIME)) / 3600, 1)


class Passes(BasicBolt):
    outputs = ("n",)

    def prepare(self, conf: Any, context: Any) -> None:
        began = hours_ahead()
        context.gauge("hours ahead", hours_ahead)
        context.gauge("hours ahead at first", lambda: began)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(tup.values)


class Live:
    """The cluster and its one topology: spout and sinks apart from each other, `middle` on both nodes."""

    def __init__(self, cluster: LocalCluster, job: Job) -> None:
        self.cluster = cluster
        self.job = job
        self.spout = self.workers("numbers")[0]
        self.other = next(worker for worker in self.workers("middle") if worker != self.spout)

    def workers(self, component: str) -> list[str]:
        return [reading.worker for reading in self.job.readings() if reading.component == component]

    def count(self, counter: str, component: str) -> int:
        return sum(reading.counters[counter] for reading in self.job.readings() if reading.component == component)

    def flows(self, timeout_secs: float = 100.0) -> None:
        before = self.count("acked", "numbers")
        wait_for("acks", lambda: self.count("acked", "numbers") > before + 2000, timeout_secs)

    def is_silent(self, counter: str, component: str) -> bool:
        """Whether hardly anything is counted for a while."""
        before, until = self.count(counter, component), time.monotonic() + 0.2
        wait_for("some time", lambda: time.monotonic() >= until)
        return self.count(counter, component) - before < 30

    def deaths(self) -> list[str]:
        return [f"{death.reason} {death.error}" for death in self.job.topology_state().restarts]

    def in_force(self) -> list[FaultInForce]:
        return faults_now(self.cluster.run_dir, time.monotonic())

    def links(self, count: str) -> int:
        view = self.job.view()
        assert view is not None
        return sum(view.board.link_counts(index)[count] for index in range(view.board.n_slots))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    stop = tmp_path_factory.mktemp("live") / "stop"
    topology = wired(
        numbers=(numbers_until(stop), 1), middle=(Passes(), 3, "shuffle numbers"), sink=(Passes(), 2, "fields middle n")
    ).build()
    config = Config(workers=4, max_spout_pending=300, message_timeout_secs=2, max_crashes=None)
    with LocalCluster(nodes=2, slots_per_node=2) as cluster:
        import tests.chaos.test_live_faults as by_value

        job = cluster.submit("live", topology, config, by_value=by_value)
        job.wait_until_ready(120)
        made = Live(cluster, job)
        yield made
        cluster.heal()
        assert made.in_force() == []
        stop.touch()
        job.wait_until_drained(120)
        assert not any(process.is_stopped(each.pid) for each in processes_of(cluster.run_dir))
        ends = [event["id"] for event in read_record(cluster.run_dir) if event["event"] == "end"]
        begins = [event["id"] for event in read_record(cluster.run_dir) if event["event"] == "begin"]
        assert sorted(ends) == begins, "each fault has one end"


@pytest.fixture(autouse=True)
def mended(live: Live) -> Iterator[None]:
    yield
    live.cluster.heal()
    # Who has died of it is back before the next fault, which would hit its successor.
    live.job.wait_until_ready(120)
    live.flows()


BROKEN: Any = {"for_secs": 60}
"""A fault that ends by itself lasts for so long: it is seen before it ends, also on a slow machine."""


@pytest.mark.parametrize(("kind", "target", "params", "reason"), [
    ("kill", "", {"signal": "KILL"}, "killed by SIGKILL"),
    ("kill", "", {"signal": "SEGV"}, "killed by SIGSEGV"),
    ("exception", "middle[0]", {"probability": 0.01, **BROKEN}, "InjectedFault"),
    ("poison", "sink", {"field": "n", "equals": 7, "does": "exit", **BROKEN}, "exited with code"),
])  # fmt: skip
def test_a_worker_dies_and_its_death_is_told(
    live: Live, kind: str, target: str, params: dict[str, Any], reason: str
) -> None:
    before = len(live.deaths())
    live.cluster.inject(kind, target or live.other, **params)
    wait_for("the death", lambda: any(reason in death for death in live.deaths()[before:]))


@pytest.mark.parametrize(("kind", "targets", "params", "reason"), [
    ("bad-code", ["sink[0]"], {"fails": "load"}, "the topology's code cannot be loaded in a worker"),
    ("bad-code", ["sink[0]"], {"fails": "prepare"}, "of kind bad-code in prepare"),
    ("fork-refused", ["node-1", "node-2"], {}, "refuses forks"),
])  # fmt: skip
def test_a_worker_cannot_start_until_the_fault_has_ended(
    live: Live, kind: str, targets: list[str], params: dict[str, Any], reason: str
) -> None:
    live.cluster.inject(kind, *targets, **params, **BROKEN)
    before = len(live.deaths())
    live.flows()
    assert len(live.deaths()) == before, "it is nothing to those that run"
    live.cluster.inject("kill", "worker sink[0]")
    wait_for("what it says", lambda: any(reason in death for death in live.deaths()[before:]))


def test_a_stopped_worker_goes_on_when_it_is_healed(live: Live) -> None:
    [begun] = live.cluster.inject("stop", live.other, **BROKEN)
    [victim] = begun.victims
    wait_for("the stop", lambda: process.is_stopped(victim.pid))
    assert [fault.kind for fault in live.in_force()] == ["stop"]
    live.cluster.heal()
    wait_for("it to go on", lambda: not process.is_stopped(victim.pid))
    assert process.lives(victim.pid, victim.started_ticks)


def test_the_clock_of_a_worker_jumps_until_it_is_healed(live: Live) -> None:
    def ahead(when: str = "") -> set[float]:
        return set(live.job.stats().metrics["middle"][f"hours ahead{when}"].values())

    live.cluster.inject("clock", live.other, secs=-7200, **BROKEN)
    wait_for("the jump", lambda: ahead() == {-2.0, 0.0})
    assert ahead(" at first") == {0.0}
    live.cluster.inject("kill", live.other)
    wait_for("the next worker", lambda: ahead(" at first") == {-2.0, 0.0})
    live.flows()
    live.cluster.heal()
    wait_for("the end", lambda: ahead() == {0.0})


@pytest.mark.parametrize(("kind", "targets", "params", "silent"), [
    ("hang", ["sink"], {}, ("executed", "sink")),
    ("partition", ["node-1", "node-2"], {}, ("acked", "numbers")),
    ("delay", ["node-1", "node-2"], {"ms": 10_000}, ("acked", "numbers")),
])  # fmt: skip
def test_nothing_moves_until_it_is_healed(
    live: Live, kind: str, targets: list[str], params: dict[str, Any], silent: tuple[str, str]
) -> None:
    live.cluster.inject(kind, *targets, **params, **BROKEN)
    wait_for("silence", lambda: live.is_silent(*silent))


def test_a_delay_lets_frames_go_when_their_time_has_come(live: Live) -> None:
    live.cluster.inject("delay", "node-1", "node-2", ms=100, **BROKEN)
    live.flows(40)


def test_workers_end_a_fault_by_themselves(live: Live) -> None:
    live.cluster.inject("partition", "node-1", "node-2", for_secs=1)
    wait_for("the end", lambda: not live.in_force())
    # Later they would be told that the file has changed.
    live.flows(KEPT_SECS / 2)


@pytest.mark.parametrize(("kind", "params", "seen"), [
    ("drop", {}, "lost"), ("duplicate", {}, "repeated"), ("delay", {}, "repeated"), ("corrupt", {}, "refused"),
    ("corrupt", {"how": "cut"}, "refused"), ("corrupt", {"how": "garble"}, "refused"),
])  # fmt: skip
def test_frames_are_broken(live: Live, kind: str, params: dict[str, Any], seen: str) -> None:
    before = live.links(seen)
    live.cluster.inject(kind, probability=0.2, frames="data", **params, **BROKEN)
    wait_for(seen, lambda: live.links(seen) > before)
