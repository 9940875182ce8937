"""Local mode: one thread, the same way every time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from squall.engine.api.collectors import BasicCollector
from squall.engine.api.component import BasicBolt, Spout
from squall.engine.api.config import Config
from squall.engine.api.context import TopologyContext
from squall.engine.api.replaying import ReplayingSpout
from squall.engine.api.topology import Topology
from squall.engine.api.tuple import Tuple
from squall.engine.build.builder import TopologyBuilder
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.local import LocalRunner
from squall.engine.errors import ClusterError, FailedTuple

# Components here are found by pickle, as users' are.
EXECUTED: list[tuple[int, Any]] = []


class Words(Spout):
    outputs = ("word",)

    def __init__(self, count: int = 100) -> None:
        self.left = count

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.collector = collector
        self.rng = random.Random(7)

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.collector.emit((self.rng.choice("abcdefgh"),), message_id=self.left)

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return not self.left


class Note(BasicBolt):
    outputs = ("word",)

    def prepare(self, conf: Any, context: TopologyContext) -> None:
        self.context = context

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        EXECUTED.append((self.context.task_id, tup.values))
        collector.emit(tup.values)


class Breaks(Note):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup[0] == "c":
            raise ValueError("c is not allowed")


class BadCleanup(Note):
    def cleanup(self) -> None:
        raise ValueError("cannot clean up")


class NeverAcked(Spout):
    outputs = ("word",)

    def next_tuple(self) -> None:
        """Nothing, for ever."""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    EXECUTED.clear()


def topology_of(bolt: BasicBolt, spout: Spout | None = None) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("words", spout or Words(), parallelism=2)
    builder.set_bolt("first", bolt, 2).shuffle_grouping("words")
    builder.set_bolt("second", Note(), 3).none_grouping("first")
    return builder.build()


def run(topology: Topology, **settings: Any) -> list[Any]:
    EXECUTED.clear()
    with LocalRunner(topology, Config(**settings)) as runner:
        report = runner.run(timeout_secs=30)
    assert (report.acked, report.pending, report.failed, report.drained) == (200, 0, 0, True)
    return list(EXECUTED)


def test_it_runs_until_drained_and_reports() -> None:
    with LocalRunner(topology_of(Note()), name="words") as runner:
        assert not runner.drained
        report = runner.run(timeout_secs=30)
        assert runner.drained
    assert (report.topology, report.emitted, report.acked) == ("words", 200, 200)
    assert report.components["second"].executed == 200
    assert report.components["first"].tasks == 2
    assert report.restarts == []


def test_the_same_seed_is_the_same_run() -> None:
    first = run(topology_of(Note()), seed=1)
    assert run(topology_of(Note()), seed=1) == first
    assert run(topology_of(Note()), seed=2) != first
    unseeded = run(topology_of(Note()))
    assert run(topology_of(Note())) == unseeded


def test_an_exception_in_a_bolt_reaches_the_caller() -> None:
    with LocalRunner(topology_of(Breaks())) as runner, pytest.raises(TaskCrashed) as crashed:
        runner.run(timeout_secs=30)
    assert crashed.value.component == "first"
    assert crashed.value.task in runner.plan.tasks_of("first")
    assert crashed.value.error_text == "ValueError: c is not allowed"
    assert isinstance(crashed.value.__cause__, ValueError)
    assert crashed.value.__cause__.__traceback__ is not None


def test_on_error_fail_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with LocalRunner(topology_of(Breaks()), Config(on_error="fail")) as runner:
        report = runner.run(timeout_secs=30)
        errors = runner.errors
    assert report.failed == len(errors) > 0
    assert report.acked + report.failed == 200
    assert {text.partition(" (")[0] for _, _, text in errors} == {"ValueError: c is not allowed"}
    # Told at the first, tenth, hundredth ... time.
    assert capsys.readouterr().err.count("error reported by first[") == len(str(len(errors)))


class Replays(ReplayingSpout):
    outputs = ("word",)
    first_delay_secs = 0.0

    def read(self) -> Any:
        yield from enumerate([("a",), ("poison",), ("b",)])


class Refuses(Note):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup[0] == "poison":
            raise FailedTuple("as always")


def test_dead_letters_are_kept() -> None:
    builder = TopologyBuilder()
    builder.set_spout("spout", Replays())
    builder.set_bolt("bolt", Refuses()).shuffle_grouping("spout")
    with LocalRunner(builder.build(), Config(max_attempts=3)) as runner:
        report = runner.run(timeout_secs=30)
    assert (report.acked, report.failed, report.replayed, report.dead_letters) == (2, 2, 2, 1)
    ((component, _, message_id, values, failure),) = runner.dead_letters
    assert (component, message_id, values) == ("spout", 1, ("poison",))
    assert (failure.error, failure.attempt) == ("as always", 3)


def test_without_ackers() -> None:
    with LocalRunner(topology_of(Note()), Config(ackers=0)) as runner:
        report = runner.run(timeout_secs=30)
    assert (report.untracked_emitted, report.emitted, report.acked) == (200, 0, 0)
    assert report.components["second"].executed == report.components["second"].untracked.delivered == 200
    assert report.untracked == (400, 400, 0, 0, 0)
    assert report.drained


def test_what_is_not_drained_in_time_is_an_error() -> None:
    topology = topology_of(Note(), NeverAcked())
    with LocalRunner(topology, name="x") as runner, pytest.raises(ClusterError, match="'x' was not drained within 0 s"):
        runner.run(timeout_secs=0)


def test_what_cleaning_up_raises_is_not_swallowed() -> None:
    runner = LocalRunner(topology_of(BadCleanup()))
    assert [str(crash)[:6] for crash in runner.close()] == ["first["] * 2
    with pytest.raises(TaskCrashed, match="cannot clean up"), LocalRunner(topology_of(BadCleanup())):
        EXECUTED.clear()
    with pytest.raises(KeyError, match="mine"), LocalRunner(topology_of(BadCleanup())):
        raise KeyError("mine")
