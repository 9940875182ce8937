"""Files that are appended to by lines: lines, and failures."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from squall.engine.api.failure import EXCEPTION, TIMEOUT, Failure
from squall.engine.clock import ManualClock
from squall.engine.errors import ClusterError
from squall.engine.report.failure_log import LAST, FailureLog, merge_failures
from squall.ipc.private import append_line, read_lines
from squall.ipc.rundir import RunDir
from squall.scheduler.records.failure_file import FailureFile, read_failures
from tests.unit.full_disk import no_room


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines"


def test_what_was_written_is_read_in_order(path: Path) -> None:
    assert read_lines(path) == []
    assert append_line(path, "one") == 4
    assert append_line(path, "zwölf") == 11
    assert read_lines(path) == [b"one", "zwölf".encode()]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("torn", [b"half", b"x" * 10_000])
@pytest.mark.parametrize("before", [b"", b"whole\n"])
def test_a_line_that_a_death_has_torn_is_neither_read_nor_continued(path: Path, before: bytes, torn: bytes) -> None:
    path.write_bytes(before + torn)
    assert read_lines(path) == before.split()
    append_line(path, "next")
    assert path.read_bytes() == before + b"next\n"


def test_a_line_that_does_not_fit_leaves_nothing(path: Path) -> None:
    append_line(path, "whole")
    with no_room(100), pytest.raises(OSError, match="File too large"):
        append_line(path, "x" * 200)
    assert path.read_bytes() == b"whole\n"


def test_a_process_that_is_forked_in_the_middle_does_not_keep_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, children = os.write, []

    def write_and_fork(fd: int, data: bytes) -> int:
        if not children:
            children.append(os.fork())
            if not children[0]:
                signal.pause()
        return write(fd, data)

    monkeypatch.setattr(os, "write", write_and_fork)
    try:
        append_line(path, "one")
        append_line(path, "two")
    finally:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)
    assert read_lines(path) == [b"one", b"two"]


RAISED = Failure(EXCEPTION, "bolt", 3, "node-1:6700", "ValueError: no", 2)


@pytest.fixture
def log() -> FailureLog:
    return FailureLog(ManualClock().now_ns)


def test_a_failure_is_filed_where_it_happened_or_under_its_spout() -> None:
    clock = ManualClock()
    log = FailureLog(clock.now_ns)
    log.note("spout", 1, ("id",), RAISED)
    clock.advance(2)
    log.note("spout", 1, [("a", 1), ("a", 2)], Failure(TIMEOUT))
    failures = merge_failures([log.failures()], since_secs=1.0)
    assert {name: dict(known.counts) for name, known in failures.items()} == {
        "bolt": {"exception": 1}, "spout": {"timeout": 2},
    }
    (record,) = failures["bolt"].last
    assert (record.at_secs, record.spout, record.message_id) == (0.0, "spout", "'id'")
    assert Failure(record.reason, record.component, record.task, record.worker, record.error, record.attempt) == RAISED
    assert [record.message_id for record in failures["spout"].last] == ["('a', 1)", "('a', 2)"]


def test_the_last_are_kept_and_a_rare_error_among_many_others_and_all_are_counted(log: FailureLog) -> None:
    for number in range(100):
        # One text, raised by two lines.
        line = 2 if number == 50 else 1
        log.note("spout", 1, [number], replace(RAISED, where=f"(bolts.py, line {line}, in execute) with ('x',)"))
    assert log.failures()["bolt"].counts == {"exception": 100}
    last = merge_failures([log.failures(), log.failures()])["bolt"].last
    assert len(last) == LAST
    assert "99" in {record.message_id for record in last}
    assert {record.message_id for record in last if record.where == "(bolts.py, line 2, in execute)"} == {"50"}


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def counted(run_dir: RunDir) -> dict[str, int]:
    return dict(read_failures(run_dir, "t-1")["bolt"].counts)


def test_the_file_goes_on_over_incarnations_and_workers_are_added_up(run_dir: RunDir) -> None:
    for worker in (0, 0, 0, 1):
        file = FailureFile(run_dir, "t-1", worker)
        file.log.note("spout", 1, [1], RAISED)
        file.publish(0, at_once=True)
    assert counted(run_dir) == {"exception": 4}
    assert len(read_failures(run_dir, "t-1")["bolt"].last) == 4
    assert read_failures(run_dir, "t-2") == {}


def test_a_burst_is_not_written_one_by_one_and_nothing_makes_no_file(run_dir: RunDir) -> None:
    file = FailureFile(run_dir, "t-1", 0)
    file.publish(0, at_once=True)
    assert not run_dir.failures("t-1").exists()
    second_ns = 1_000_000_000
    for number in range(3):
        file.log.note("spout", 1, [number], RAISED)
        file.publish(second_ns + number)
    assert counted(run_dir) == {"exception": 1}
    file.publish(2 * second_ns)
    assert counted(run_dir) == {"exception": 3}


def test_a_file_that_is_none_is_named(run_dir: RunDir) -> None:
    run_dir.failures("t-1").mkdir(parents=True)
    (run_dir.failures("t-1") / "0.json").write_text('{"x": 1}')
    with pytest.raises(ClusterError, match=r"0\.json is no list of failures"):
        read_failures(run_dir, "t-1")
