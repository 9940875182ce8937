"""The rings of the last day, and the charts that are made from them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from squall.engine.report.metrics import HISTOGRAM_BUCKETS, TASK_COUNTERS, bucket_of
from squall.engine.report.run_report import TaskReading, build_report
from squall.ipc.rundir import RunDir
from squall.scheduler.common.daemon import note_death
from squall.scheduler.faults.in_force import BEGIN, END, FaultInForce, note
from squall.ui.charts import marks_of, points_of
from squall.ui.cluster_api import ClusterApi
from squall.ui.history import RINGS, ComponentCounts, History
from squall.ui.sampler import Sample

NOON = 1_700_000_000.0


def sample(at: float, acked: int, version: int = 1, millis: int = 5) -> Sample:
    """A spout that has acked so many messages, each within the same time."""
    counters = {**dict.fromkeys(TASK_COUNTERS, 0), "emitted": acked + 3, "tracked": acked + 3, "acked": acked}
    histogram = [0] * HISTOGRAM_BUCKETS
    histogram[bucket_of(millis * 1000)] = acked
    reading = TaskReading(1, "lines", "spout", "n:1", counters, histogram)
    report = build_report("t", [reading], at - NOON, [], False)
    status = Mock(id="t-1", uptime_secs=at - NOON, **vars(report))
    return Sample(at, at - NOON, 1.0, status, status, [reading], [], [], version, {})


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    history = History(tmp_path / "ui-history.db")
    yield history
    history.close()


@pytest.mark.parametrize(("looks", "every_secs", "window_secs", "points", "step_secs", "per_sec"), [
    (1000, 1, 900, 300, 3, 100.0), (1500, 60, 86400, 288, 300, 1.0),
], ids=["an hour by seconds", "a day by minutes"])
def test_a_window_becomes_the_points_that_were_asked_for(
    history: History, looks: int, every_secs: int, window_secs: int, points: int, step_secs: int, per_sec: float
) -> None:
    for second in range(0, looks * every_secs, every_secs):
        history.add("t-1", sample(NOON + second, int(per_sec * second)))
    step, rows = history.rows("t-1", NOON + second, window_secs, points)
    made = points_of(rows, step)
    assert (step, {point.pending for point in made}) == (step_secs, {3})
    assert points - 2 <= len(made) <= points
    assert {point.acked_per_sec for point in made[5:]} == {per_sec}
    assert made[-1].p50_ms == pytest.approx(5, rel=1 / 16)
    assert history.rows("t-1", NOON + second, 172_800, 48)[0] == 3600


def test_rings_have_a_fixed_number_of_rows(history: History) -> None:
    for second in range(0, 2 * RINGS[1], 4):
        history.add("t-1", sample(NOON + second, second))
    assert len(history.rows("t-1", NOON + 10_000, 3600, 3600)[1]) <= RINGS[1] / 4
    oldest = history.at("t-1", NOON - 1)
    assert oldest is not None
    assert oldest.at_unix_secs < NOON + 60, "minutes reach back further than seconds"


def test_a_window_of_storm_holds_what_was_done_in_it(history: History) -> None:
    for second in (0, 400, 1000):
        look = sample(NOON + second, 10 * second)
        history.add("t-1", look)
    sampler = Mock(**{"latest.return_value": look})
    over_secs, counts = ClusterApi(sampler, history=history).window("t", "600")
    assert (over_secs, counts["lines"].acked) == (600, 6000)


def test_messages_that_become_dead_letters_have_failed(history: History) -> None:
    for letters in (0, 8):
        look = sample(NOON + letters, 1)
        look.readings[0].counters.update(dead_letters=letters, emitted=2 * letters)
        history.add("t-1", look)
    [point] = points_of(history.rows("t-1", NOON + 8, 60, 60)[1], 1)
    assert (point.emitted_per_sec, point.acked_per_sec, point.failed_per_sec) == (2, 0, 1)


def test_a_gap_stays_a_gap(history: History) -> None:
    for second in [0, 1, 2, 500, 501]:
        history.add("t-1", sample(NOON + second, 10 * second))
    step_secs, rows = history.rows("t-1", NOON + 501, 3600, 3600)
    assert [point.acked_per_sec for point in points_of(rows, step_secs)] == [10, 10, None, 10]


def test_another_topology_of_the_name_begins_anew(history: History, tmp_path: Path) -> None:
    history.add("t-1", sample(NOON, 1000))
    history.add("t-2", sample(NOON + 1, 5))
    history.add("t-2", sample(NOON + 2, 6))
    # From another connection: what is kept outlives a kill.
    with contextlib.closing(History(tmp_path / "ui-history.db")) as other:
        step_secs, rows = other.rows("t-2", NOON + 2, 60, 60)
    assert [point.acked_per_sec for point in points_of(rows, step_secs)] == [1]


def test_one_that_is_gone_leaves_after_a_day(history: History) -> None:
    history.add("gone", sample(NOON, 1))
    history.add("t-1", sample(NOON + 80_000, 1))
    assert history.at("gone", NOON) is not None
    history.add("t-1", sample(NOON + 90_000, 1))
    assert history.at("gone", NOON) is None


def test_counts_since_a_row_never_fall_below_zero() -> None:
    done = ComponentCounts(emitted=5, latencies={3: 7, 4: 1}).since(ComponentCounts(emitted=9, latencies={3: 2, 4: 9}))
    assert (done.emitted, done.latencies) == (0, {3: 5})


@pytest.mark.parametrize("damage", [b"", b"no database" * 1000, None])
def test_a_damaged_file_is_set_aside_once(
    history: History, tmp_path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ui-history.db"
    for second in range(300):
        history.add("t-1", sample(NOON + second, 1))
    history.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096) if damage is None else damage)
    with caplog.at_level(logging.WARNING):
        for second in range(3):
            history.add("t-1", sample(NOON + 5000 + second, 1))
    row = history.at("t-1", NOON + 5002)
    assert row is not None
    assert row.at_unix_secs == NOON + 5002
    assert len(caplog.records) == (damage != b""), "an empty file is a new database"
    assert path.with_suffix(".damaged").exists() == (damage != b"")


def test_without_room_samples_are_missing_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    history = History(tmp_path / "not there" / "ui-history.db")
    for second in range(3):
        history.add("t-1", sample(NOON + second, 1))
    assert history.at("t-1", NOON) is None
    assert len(caplog.records) == 1
    history.close()


def test_marks_say_what_happened_in_the_window_to_the_topology_or_to_all(
    history: History, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: NOON + 5)
    note_death(run_dir, "nimbus", "killed by SIGKILL")
    for number, topology_id in enumerate(("t-1", "other-2", "")):
        fault = FaultInForce(number, "slow", ["split[0]"], 1.0, 6.0, topology_id=topology_id, params={"ms": 5.0})
        note(run_dir, BEGIN, fault, 1.0)
        note(run_dir, END, fault, 2.0, healed=topology_id == "t-1")
    for second in range(10):
        history.add("t-1", sample(NOON + second, second, version=1 + (second > 7)))
    _, rows = history.rows("t-1", NOON + 9, 60, 60)
    look = sample(NOON + 9, 9)
    text = "slow split[0] ms=5 for 5 s"
    marks = [(mark.at_unix_secs - NOON, mark.kind, mark.text) for mark in marks_of(run_dir, look, rows, NOON)]
    assert [mark for mark in marks if mark[1].startswith("fault")] == [
        (1, "fault began", text), (1, "fault began", text), (2, "fault ended", f"{text}, healed"),
        (2, "fault ended", text),
    ]
    assert [mark[:2] for mark in marks if not mark[1].startswith("fault")] == [(5, "daemon died"), (8, "moved")]
    assert marks_of(run_dir, look, rows, NOON + 8.5) == []
