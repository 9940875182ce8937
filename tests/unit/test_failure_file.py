"""Failures kept for the operator: counts by reason, the last of each component, across incarnations and workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.engine.api.failure import EXCEPTION, TIMEOUT, Failure
from squall.engine.clock import ManualClock
from squall.engine.errors import ClusterError
from squall.engine.report.failure_log import LAST, FailureLog, merge_failures
from squall.ipc.rundir import RunDir
from squall.scheduler.records.failure_file import FailureFile, read_failures

RAISED = Failure(EXCEPTION, "bolt", 3, "node-1:6700", "ValueError: no", 2)


def test_a_failure_is_filed_where_it_happened_or_under_its_spout() -> None:
    clock = ManualClock()
    log = FailureLog(clock.now_ns)
    log.note("spout", 1, ("id",), RAISED)
    clock.advance(2)
    log.note("spout", 1, [("a", 1)], Failure(TIMEOUT))
    log.note("spout", 1, [("a", 2)], Failure(TIMEOUT))
    failures = merge_failures([log.failures()], since_secs=1.0)
    assert {name: dict(known.counts) for name, known in failures.items()} == {
        "bolt": {"exception": 1}, "spout": {"timeout": 2},
    }
    (record,) = failures["bolt"].last
    assert (record.at_secs, record.spout, record.message_id) == (0.0, "spout", "'id'")
    assert (record.reason, record.component, record.task, record.worker, record.error, record.attempt) == (
        "exception", "bolt", 3, "node-1:6700", "ValueError: no", 2,
    )
    assert [record.message_id for record in failures["spout"].last] == ["('a', 1)", "('a', 2)"]


def test_only_the_last_are_kept_and_all_are_counted() -> None:
    log = FailureLog(ManualClock().now_ns)
    for number in range(100):
        log.note("spout", 1, [number], RAISED)
    kept = log.failures()["bolt"]
    assert [record.message_id for record in kept.last] == [str(number) for number in range(100 - LAST, 100)]
    assert kept.counts == {"exception": 100}


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def test_the_file_goes_on_over_incarnations_and_workers_are_added_up(run_dir: RunDir) -> None:
    for _ in range(3):
        file = FailureFile(run_dir, "t-1", 0)
        file.log.note("spout", 1, [1], RAISED)
        file.publish(0, at_once=True)
    other = FailureFile(run_dir, "t-1", 1)
    other.log.note("spout", 2, [2], RAISED)
    other.publish(0, at_once=True)
    assert read_failures(run_dir, "t-1")["bolt"].counts == {"exception": 4}
    assert len(read_failures(run_dir, "t-1")["bolt"].last) == 4
    assert read_failures(run_dir, "t-2") == {}


def test_a_burst_is_not_written_one_by_one(run_dir: RunDir) -> None:
    file = FailureFile(run_dir, "t-1", 0)
    second_ns = 1_000_000_000
    for number in range(3):
        file.log.note("spout", 1, [number], RAISED)
        file.publish(second_ns + number)
    assert read_failures(run_dir, "t-1")["bolt"].counts == {"exception": 1}
    file.publish(2 * second_ns)
    assert read_failures(run_dir, "t-1")["bolt"].counts == {"exception": 3}


def test_nothing_failed_nothing_is_made(run_dir: RunDir) -> None:
    FailureFile(run_dir, "t-1", 0).publish(0, at_once=True)
    assert not run_dir.failures("t-1").exists()


def test_a_file_that_is_none_is_named(run_dir: RunDir) -> None:
    run_dir.failures("t-1").mkdir(parents=True)
    (run_dir.failures("t-1") / "0.json").write_text('{"x": 1}')
    with pytest.raises(ClusterError, match=r"0\.json is no list of failures"):
        read_failures(run_dir, "t-1")
