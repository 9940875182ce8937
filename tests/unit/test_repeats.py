"""Failures that repeat are one line, whatever worker, task and tuple their texts name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from squall.engine.report.failure_log import Cause, Repeats, cause_of_error, equal_deaths
from squall.ipc.rundir import RunDir
from squall.scheduler.records.failure_file import times_lately


@dataclass(frozen=True)
class Death:
    slot: str
    error: str
    reason: str = "exited with code 1"


def error(key: str, task: int = 3, line: int = 9) -> str:
    return f"count[{task}] raised KeyError: {key!r} in execute (/a/app.py, line {line}, in execute)\nTraceback ..."


@given(st.text(), st.integers(1, 99))
def test_errors_of_one_line_have_one_cause_whatever_they_say(text: str, task: int) -> None:
    assert cause_of_error(error(text, task)) == Cause("count", "KeyError", "execute (/a/app.py, line 9, in execute)")
    assert cause_of_error(error(text, task, line=10)) != cause_of_error(error(text, task))


def test_other_last_words_are_equal_if_their_first_lines_are() -> None:
    hung = "count[3] hung in execute for 5 s"
    assert cause_of_error(f"{hung}\nstack") == Cause(hung, "", "")


def test_deaths_by_one_line_are_together_and_those_without_an_error_by_worker() -> None:
    deaths = [
        Death("a:1", error("x")), Death("a:1", "", "killed"), Death("a:2", error("y", 4)), Death("a:2", "", "killed"),
        Death("a:1", "", "killed"),
    ]
    assert [[deaths.index(one) for one in equal] for equal in equal_deaths(deaths)] == [[0, 2], [3], [1, 1]]


def test_errors_of_two_lines_are_told_apart_and_none_is_told_anew_within_ten_minutes() -> None:
    repeats, minute_ns = Repeats(), 60_000_000_000
    texts = [f"ValueError: bad (1) {n} (a.py, line {1 if n % 10 else 2}, in execute)" for n in range(9 * 60)]
    told = [repeats.error_line("count", 1, text, n * minute_ns // 60) for n, text in enumerate(texts)]
    assert [number for number, line in enumerate(told) if line] == [0, 1, 11, 90, 111]
    assert repeats.error_line("count", 1, texts[1], 10 * minute_ns)


def test_workers_of_a_topology_count_equal_errors_together(tmp_path: Path) -> None:
    run_dir = RunDir(str(tmp_path))
    texts = error("x"), error("y", 4), error("z", line=10), error("w", 5)
    assert [times_lately(run_dir, "words-1", text) for text in texts] == [1, 2, 1, 3]
