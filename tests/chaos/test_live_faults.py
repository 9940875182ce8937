"""Faults in one running cluster, one after the other: each is seen to bite, and to end; nothing is lost by them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from squall import BasicBolt, Config, Spout, TopologyBuilder
from squall.scheduler.client.job import Job
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.common import process
from squall.scheduler.common.role import processes_of
from squall.scheduler.faults.in_force import FaultInForce, faults_now, read_record
from tests.process.waiting import wait_for


class Numbers(Spout):
    """Emits numbers below a thousand, over and over, until a file is there, and whatever fails again."""

    outputs = ("n",)

    def __init__(self, stop: str) -> None:
        self._stop = Path(stop)

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self._collector = collector
        self._next, self._again, self._looks, self._ended = 0, list[int](), 0, False

    def next_tuple(self) -> None:
        self._looks += 1
        if self._looks % 100 == 0:
            self._ended = self._stop.exists()
        if self._again:
            self._collector.emit((self._again[-1] % 1000,), message_id=self._again.pop())
        elif not self._ended:
            self._next += 1
            self._collector.emit((self._next % 1000,), message_id=self._next)

    def exhausted(self) -> bool:
        return self._ended and not self._again

    def fail(self, message_id: Any) -> None:
        self._again.append(message_id)


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


"""A fault that ends by itself lasts for so long: it is seen before it ends, also on a slow machine."""


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

    def acked(self) -> int:
        return self.count("acked", "numbers")

    def flows(self) -> None:
        before = self.acked()
        wait_for("acks", lambda: self.acked() > before + 2000)

    def grew(self, what: Callable[[], int], secs: float) -> int:
        before, until = what(), time.monotonic() + secs
        wait_for("some time", lambda: time.monotonic() >= until)
        return what() - before

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
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(str(stop)))
    builder.set_bolt("middle", Passes(), 3).shuffle_grouping("numbers")
    builder.set_bolt("sink", Passes(), 2).fields_grouping("middle", "n")
    config = Config(workers=4, max_spout_pending=300, message_timeout_secs=2, max_crashes=None)
    with LocalCluster(nodes=2, slots_per_node=2) as cluster:
        import tests.chaos.test_live_faults as by_value

        job = cluster.submit("live", builder.build(), config, by_value=by_value)
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


@pytest.mark.parametrize("signal", ["KILL", "SEGV"])
def test_a_worker_dies_and_is_claimed(live: Live, signal: str) -> None:
    before = len(live.deaths())
    [begun] = live.cluster.inject("kill", live.other, signal=signal)
    wait_for("the death", lambda: len(live.deaths()) > before)
    assert live.deaths()[-1].startswith(f"killed by SIG{signal}")
    [victim] = begun.victims
    named = [event for event in read_record(live.cluster.run_dir) if event["id"] == begun.id]
    assert named[0]["victims"][0]["pid"] == victim.pid


@pytest.mark.parametrize(
    ("fails", "reason"),
    [("load", "the topology's code cannot be loaded in a worker"), ("prepare", "of kind bad-code in prepare")],
)
def test_a_worker_cannot_start_until_the_fault_has_ended(live: Live, fails: str, reason: str) -> None:
    [begun] = live.cluster.inject("bad-code", "sink[0]", fails=fails, for_secs=60)
    before = len(live.deaths())
    live.flows()
    assert len(live.deaths()) == before, "who runs already has its code"
    live.cluster.inject("kill", "worker sink[0]")
    wait_for("what it says", lambda: any(reason in death for death in live.deaths()[before:]))
    hits = [event for event in read_record(live.cluster.run_dir) if event["id"] == begun.id]
    assert {event["event"] for event in hits} == {"begin", "hit"}


def test_a_stopped_worker_goes_on_when_it_is_healed(live: Live) -> None:
    [begun] = live.cluster.inject("stop", live.other, for_secs=60)
    [victim] = begun.victims
    wait_for("the stop", lambda: process.is_stopped(victim.pid))
    assert [fault.kind for fault in live.in_force()] == ["stop"]
    live.cluster.heal()
    wait_for("it to go on", lambda: not process.is_stopped(victim.pid))
    assert process.lives(victim.pid, victim.started_ticks)


def test_the_clock_of_a_worker_jumps_until_it_is_healed(live: Live) -> None:
    def ahead(when: str = "") -> set[float]:
        return set(live.job.stats().metrics["middle"][f"hours ahead{when}"].values())

    live.cluster.inject("clock", live.other, secs=-7200, for_secs=60)
    wait_for("the jump", lambda: ahead() == {-2.0, 0.0})
    assert ahead(" at first") == {0.0}
    live.cluster.inject("kill", live.other)
    wait_for("the next worker", lambda: ahead(" at first") == {-2.0, 0.0})
    live.flows()
    live.cluster.heal()
    wait_for("the end", lambda: ahead() == {0.0})


def test_a_task_that_hangs_goes_on_when_it_is_healed(live: Live) -> None:
    live.cluster.inject("hang", "sink", for_secs=60)
    wait_for("sinks that hang", lambda: live.grew(lambda: live.count("executed", "sink"), 0.2) == 0)


def test_a_task_raises(live: Live) -> None:
    before = len(live.deaths())
    live.cluster.inject("exception", "middle[0]", probability=0.01, for_secs=60)
    wait_for("the exception", lambda: any("InjectedFault" in death for death in live.deaths()[before:]))


def test_a_poisoned_tuple_kills_whoever_executes_it(live: Live) -> None:
    before = len(live.deaths())
    [begun] = live.cluster.inject("poison", "sink", field="n", matches="^7", does="exit", for_secs=60)
    live.flows()
    assert len(live.deaths()) == before, "a number is no text"
    live.cluster.heal()
    live.cluster.inject("poison", "sink", field="n", equals=7, does="exit", for_secs=60)
    wait_for("the death", lambda: any("exited with code" in death for death in live.deaths()[before:]))
    assert begun.params["does"] == "exit"


@pytest.mark.parametrize(("kind", "params"), [("partition", {}), ("delay", {"ms": 10_000})])
def test_nothing_goes_between_the_nodes(live: Live, kind: str, params: dict[str, Any]) -> None:
    live.cluster.inject(kind, "node-1", "node-2", for_secs=60, **params)
    wait_for("silence", lambda: live.grew(live.acked, 0.2) < 30)


@pytest.mark.parametrize(
    ("kind", "params", "seen"),
    [
        ("drop", {}, "lost"), ("duplicate", {}, "repeated"), ("delay", {}, "repeated"), ("corrupt", {}, "refused"),
        ("corrupt", {"how": "cut"}, "refused"), ("corrupt", {"how": "garble"}, "refused"),
    ],
)  # fmt: skip
def test_frames_are_broken(live: Live, kind: str, params: dict[str, Any], seen: str) -> None:
    before = live.links(seen)
    live.cluster.inject(kind, probability=0.2, for_secs=60, frames="data", **params)
    wait_for(seen, lambda: live.links(seen) > before)


def test_forks_are_refused(live: Live) -> None:
    node = live.other.partition(":")[0]
    live.cluster.inject("fork-refused", node, for_secs=60)
    before = len(live.deaths())
    live.cluster.inject("kill", live.other)
    wait_for("the refusal", lambda: any("refuses forks" in death for death in live.deaths()[before:]))
