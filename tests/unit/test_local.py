"""Local mode: one thread, the same way every time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from squall.engine.api.collectors import BasicCollector
from squall.engine.api.component import BasicBolt
from squall.engine.api.config import Config
from squall.engine.api.context import TopologyContext
from squall.engine.api.replaying import ReplayingSpout
from squall.engine.api.topology import Topology
from squall.engine.api.tuple import Tuple
from squall.engine.build.builder import TopologyBuilder
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.local import LocalRunner
from squall.engine.errors import ClusterError

# Components here are found by pickle, as users' are.
EXECUTED: list[tuple[int, Any]] = []


class Words(ReplayingSpout):
    outputs = ("word",)
    first_delay_secs = 0.0

    def read(self) -> Any:
        rng = random.Random(7)
        return ((number, (rng.choice("abcdefgh"),)) for number in range(100))


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



def topology_of(bolt: BasicBolt) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("words", Words(), parallelism=2)
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


def test_on_error_fail_goes_on_and_keeps_dead_letters(capsys: pytest.CaptureFixture[str]) -> None:
    with LocalRunner(topology_of(Breaks()), Config(on_error="fail", max_attempts=2)) as runner:
        report = runner.run(timeout_secs=30)
    letters = len(runner.dead_letters)
    assert (report.acked + letters, report.failed, report.replayed, report.dead_letters) == (200, *[letters] * 3)
    assert {(component, values, failure.attempt) for component, _, _, values, failure in runner.dead_letters} == {
        ("words", ("c",), 2)
    }
    assert [text.partition(" (")[0] for _, _, text in runner.errors] == ["ValueError: c is not allowed"] * 2 * letters
    # Told at the first, tenth, hundredth ... time.
    assert capsys.readouterr().err.count("error reported by first[") == len(str(2 * letters))


def test_without_ackers() -> None:
    with LocalRunner(topology_of(Note()), Config(ackers=0)) as runner:
        report = runner.run(timeout_secs=30)
    assert (report.untracked_emitted, report.emitted, report.acked) == (200, 0, 0)
    assert report.components["second"].executed == report.components["second"].untracked.delivered == 200
    assert report.untracked == (400, 400, 0, 0, 0)
    assert report.drained


def test_what_is_not_drained_in_time_is_an_error() -> None:
    late = pytest.raises(ClusterError, match="'x' was not drained within 0 s")
    with LocalRunner(topology_of(Note()), name="x") as runner, late:
        runner.run(timeout_secs=0)


def test_what_cleaning_up_raises_is_not_swallowed() -> None:
    runner = LocalRunner(topology_of(BadCleanup()))
    assert [str(crash)[:6] for crash in runner.close()] == ["first["] * 2
    with pytest.raises(TaskCrashed, match="cannot clean up"), LocalRunner(topology_of(BadCleanup())):
        EXECUTED.clear()
    with pytest.raises(KeyError, match="mine"), LocalRunner(topology_of(BadCleanup())):
        raise KeyError("mine")
