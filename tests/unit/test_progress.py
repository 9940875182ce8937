"""Progress without a terminal: short lines, seldom."""

from __future__ import annotations

import pytest

from squall.cli.progress import Progress
from squall.engine.report.metrics import HISTOGRAM_BUCKETS, TASK_COUNTERS
from squall.engine.report.run_report import FLOW_COUNTERS, TaskReading


def spout(**counts: int) -> TaskReading:
    counters = {**dict.fromkeys((*TASK_COUNTERS, *FLOW_COUNTERS), 0), **counts}
    return TaskReading(1, "numbers", "spout", "node-1:6700", counters, [0] * HISTOGRAM_BUCKETS)


def test_a_line_is_short_and_names_failures_only_if_there_are_any(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("words")
    assert not progress.due
    progress.update([spout(emitted=123_456_789, tracked=123_456_789, acked=123_456_700, pending=89)])
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) <= 100
    assert ("emitted 123,456,789" in line, "acked 123,456,700" in line, "failed" in line) == (True, True, False)
    progress.update([spout(emitted=10, tracked=10, acked=7, failed=2, dead_letters=1)])
    said = capsys.readouterr().err
    assert "1 dead letter" in said


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("words", 0.0, quiet=True)
    assert not progress.due
    progress.tell_deaths([])
    assert capsys.readouterr().err == ""
