"""The rules of a slot's history: each is broken once, and named; what really happens breaks none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from squall.scheduler.supervisor import history
from squall.scheduler.supervisor.history import BEGIN, History, Step, read_history
from tests.history_rules import violations

BORN = Step(10.0, "node-1", 6700, "started", "words-1", 0, 1, 101)
READY = replace(BORN, at_secs=10.1, event="ready")
DIED = replace(BORN, at_secs=11.0, event="died", reason="killed by SIGKILL")
REBORN = Step(11.01, "node-1", 6700, "started", "words-1", 0, 2, 102)


def found(*steps: Step, max_deaths: int = 30) -> list[str]:
    return violations(sorted(steps, key=lambda step: step.at_secs), max_deaths, 60.0)


def test_a_life_a_death_and_a_replacement_break_no_rule() -> None:
    assert found(BORN, READY, DIED, REBORN, replace(REBORN, at_secs=11.1, event="ready")) == []
    stopped = replace(BORN, at_secs=12.0, event="stopped")
    assert found(BORN, READY, stopped, replace(REBORN, at_secs=12.1)) == []


def test_a_refused_fork_ends_a_life_that_never_began() -> None:
    refused = replace(DIED, pid=0, reason="cannot fork")
    assert found(replace(refused, at_secs=9.0), replace(BORN, incarnation=2)) == []


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        ((BORN, replace(REBORN, at_secs=10.5)), "pid 101, incarnation 1, has not ended"),
        ((BORN, DIED, replace(REBORN, incarnation=1)), "incarnation 1 was there before"),
        ((replace(BORN, incarnation=5), replace(DIED, incarnation=5), REBORN), "incarnation 5 was there before"),
        ((BORN, replace(REBORN, port=6701)), "the same work lives in node-1:6700, incarnation 1"),
        ((BORN, replace(REBORN, node="node-2")), "the same work lives in node-1:6700, incarnation 1"),
        ((READY,), "it had not started"),
        ((BORN, DIED, READY, replace(READY, at_secs=11.5)), "it had not started"),
        ((BORN, replace(DIED, pid=77)), "pid 101 lives there"),
        ((BORN, DIED, replace(DIED, at_secs=11.005, event="failed"), REBORN), "it had been given up"),
    ],
)
def test_each_rule_is_named_when_it_is_broken(steps: tuple[Step, ...], what: str) -> None:
    (first, *_) = found(*steps)
    assert what in first


def test_more_restarts_than_allowed_are_named() -> None:
    steps = []
    for n in range(1, 7):
        steps += [replace(BORN, at_secs=n, incarnation=n, pid=n), replace(DIED, at_secs=n + 0.5, incarnation=n, pid=n)]
    assert found(*steps, max_deaths=5) == []
    steps.append(replace(BORN, at_secs=7.0, incarnation=7, pid=7))
    assert [text.partition("started: ")[2] for text in found(*steps, max_deaths=5)] == [
        "6 deaths within 60 s; allowed: 5"
    ]
    assert found(*steps[:-1], replace(steps[-1], at_secs=61.6), max_deaths=5) == []
    excused = [replace(step, excused=step.event == "died") for step in steps]
    assert found(*excused, max_deaths=5) == []


def test_adoption_is_the_same_life_and_deaths_without_a_supervisor_are_unknown() -> None:
    begin = Step(10.5, "node-1", 0, BEGIN, pid=9)
    adopted = replace(BORN, at_secs=10.6)
    assert found(BORN, begin, adopted, DIED, REBORN) == []
    assert found(BORN, begin, REBORN) == []
    other = replace(begin, node="node-2")
    assert found(BORN, other, replace(REBORN, at_secs=10.7)) != []


def test_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_BYTES", 2000)
    written = History(tmp_path / "history-n.jsonl")
    for n in range(100):
        written.append(replace(BORN, at_secs=float(n)))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 4500
    kept = [step.at_secs for step in read_history(tmp_path)]
    assert kept == [float(n) for n in range(100 - len(kept), 100)]


def test_a_line_that_is_still_being_written_is_not_read_and_one_left_half_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "history-n.jsonl"
    history = History(path)
    history.append(Step(1.0, "n", 0, BEGIN))
    history.append(Step(2.0, "n", 6700, "started"))
    whole = path.read_bytes()
    for cut in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:cut])
        assert [step.at_secs for step in read_history(tmp_path)] == [1.0]
    history = History(path)
    history.append(Step(3.0, "n", 0, BEGIN))
    assert [step.at_secs for step in read_history(tmp_path)] == [1.0, 3.0]
