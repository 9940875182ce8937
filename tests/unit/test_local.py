"""Local mode: one thread, the same way every time."""

from __future__ import annotations

import random
import re
from dataclasses import astuple
from typing import Any

import pytest

from squall.cli.report_text import print_summary
from squall.engine.api.config import Config
from squall.engine.api.replaying import ReplayingSpout
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.local import LocalRunner
from squall.engine.errors import ClusterError
from tests.unit.rig import DoesBasic, copy_component
from tests.unit.wired import wired

EXECUTED: list[tuple[int, Any]] = []


class Words(ReplayingSpout):
    outputs = ("word",)
    first_delay_secs = 0.0

    def read(self) -> Any:
        rng = random.Random(7)
        return ((number, (rng.choice("abcdefgh"),)) for number in range(100))


def note(bolt: DoesBasic, tup: Any, collector: Any) -> None:
    EXECUTED.append((bolt.context.task_id, tup.values))
    collector.emit(tup.values)


def breaks(bolt: DoesBasic, tup: Any, collector: Any) -> None:
    if tup[0] == "c":
        raise ValueError("c is not allowed")


class BadCleanup(DoesBasic):
    def cleanup(self) -> None:
        raise ValueError("cannot clean up")


def runner_of(execute: Any = note, first: type[DoesBasic] = DoesBasic, **settings: Any) -> LocalRunner:
    EXECUTED.clear()
    builder = wired(
        words=(Words(), 2),
        first=(first(execute, ("word",)), 2, "shuffle words"),
        second=(DoesBasic(note, ("word",)), 3, "none first"),
    )
    return LocalRunner(builder.build(), Config(**settings), name="x", copy=copy_component)


def run(**settings: Any) -> list[Any]:
    with runner_of(**settings) as runner:
        assert not runner.drained
        report = runner.run(timeout_secs=30)
        assert runner.drained
    assert (report.acked, report.pending, report.failed, report.drained) == (200, 0, 0, True)
    return list(EXECUTED)


def test_the_same_seed_is_the_same_run() -> None:
    first = run(seed=1)
    assert run(seed=1) == first
    assert run(seed=2) != first
    unseeded = run()
    assert run() == unseeded


def test_an_exception_in_a_bolt_reaches_the_caller() -> None:
    with runner_of(breaks) as runner, pytest.raises(TaskCrashed) as crashed:
        runner.run(timeout_secs=30)
    assert (crashed.value.component, crashed.value.error_text) == ("first", "ValueError: c is not allowed")
    assert isinstance(crashed.value.__cause__, ValueError)


def test_on_error_fail_goes_on_and_keeps_dead_letters(capsys: pytest.CaptureFixture[str]) -> None:
    with runner_of(breaks, on_error="fail", max_attempts=2) as runner:
        report = runner.run(timeout_secs=30)
    letters = len(runner.dead_letters)
    assert (report.acked + letters, report.failed, report.replayed, report.dead_letters) == (200, *[letters] * 3)
    assert report.failures["first"].counts == {"exception": 2 * letters}
    assert [text.partition(" (")[0] for _, _, text in runner.errors] == ["ValueError: c is not allowed"] * 2 * letters
    # Told at the first, tenth, hundredth ... time.
    assert capsys.readouterr().err.count("error reported by first[") == len(str(2 * letters))


def reports(bolt: DoesBasic, tup: Any, collector: Any) -> None:
    if tup[0] == "c":
        collector.report_error(ValueError("odd"))


def test_what_a_component_reports_is_in_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    with runner_of(reports) as runner:
        report = runner.run(timeout_secs=30)
    assert report.failures["first"].counts == {"reported": len(runner.errors)}
    print_summary(report)
    assert re.search(r"s was reported in first\[\d\] on local:0: ValueError: odd\n", capsys.readouterr().out)


def test_without_ackers() -> None:
    with runner_of(ackers=0) as runner:
        report = runner.run(timeout_secs=30)
    assert (report.untracked_emitted, report.emitted, report.acked) == (200, 0, 0)
    assert (astuple(report.untracked), report.drained) == ((400, 400, 0, 0, 0), True)


def test_what_is_not_drained_in_time_is_an_error() -> None:
    late = pytest.raises(ClusterError, match="'x' was not drained within 0 s")
    with runner_of() as runner, late:
        runner.run(timeout_secs=0)


def test_what_cleaning_up_raises_is_not_swallowed() -> None:
    assert [str(crash)[:6] for crash in runner_of(first=BadCleanup).close()] == ["first["] * 2
    with pytest.raises(TaskCrashed, match="cannot clean up"), runner_of(first=BadCleanup):
        EXECUTED.clear()
    with pytest.raises(KeyError, match="mine"), runner_of(first=BadCleanup):
        raise KeyError("mine")
