"""The run report: sums over the right tasks."""

from __future__ import annotations

import json

import pytest

from squall.engine.report.metrics import TASK_COUNTERS, TaskStats
from squall.engine.report.run_report import Restart, RunReport, TaskReading, build_report


def reading(
    task: int, component: str, kind: str, worker: str, latencies_ms: tuple[int, ...] = (), **counters: int
) -> TaskReading:
    stats = TaskStats()
    for latency in latencies_ms:
        stats.observe_ns(latency * 1_000_000)
    return TaskReading(
        task, component, kind, worker, {**dict.fromkeys(TASK_COUNTERS, 0), **counters}, stats.histogram
    )


@pytest.fixture
def report() -> RunReport:
    return build_report(
        "word-count",
        [
            reading(
                1, "lines", "spout", "n:1", (10,) * 98,
                emitted=102, tracked=100, acked=98, failed=2, waiting=1, timed_out=1, replayed=2,
            ),
            reading(2, "lines", "spout", "n:2", (1000,), emitted=11, tracked=11, acked=1, abandoned=2, dead_letters=1),
            reading(3, "split", "bolt", "n:1", emitted=500, executed=100, execute_ns=1_000_000_000, acked=99, failed=1),
            reading(4, "split", "bolt", "n:2", emitted=50, executed=100, execute_ns=3 * 10**9, in_queue=4, errors=2),
        ],
        duration_secs=4.0,
        restarts=[Restart("n:2", "killed", 1.5, 0.02)],
        drained=False,
    )


def test_the_first_counts_are_messages_of_the_spouts(report: RunReport) -> None:
    assert (report.emitted, report.acked, report.failed, report.waiting) == (111, 99, 1, 1)
    assert (report.timed_out, report.replayed, report.pending, report.dead_letters) == (1, 2, 7, 1)
    assert (report.abandoned, report.untracked_emitted) == (2, 2)
    assert (report.topology, report.duration_secs, report.drained) == ("word-count", 4.0, False)


def test_latencies_are_those_of_all_messages(report: RunReport) -> None:
    latency = report.latency_ms
    assert latency["p50"] == pytest.approx(10, rel=1 / 16)
    assert latency["p90"] == pytest.approx(10, rel=1 / 16)
    assert latency["max"] == pytest.approx(1000, rel=1 / 16)
    assert sorted(millis for millis in latency.values() if millis is not None) == list(latency.values())


def test_components_are_sums_over_their_tasks(report: RunReport) -> None:
    split = report.components["split"]
    assert (split.kind, split.tasks, split.emitted, split.executed) == ("bolt", 2, 550, 200)
    assert (split.acked, split.failed, split.errors) == (99, 1, 2)
    assert split.execute_latency_ms == pytest.approx(20.0)
    assert split.capacity == pytest.approx(0.5)
    assert report.components["lines"].execute_latency_ms is None


def test_a_report_is_one_json_document(report: RunReport) -> None:
    document = json.loads(report.to_json())
    assert document["acked"] == 99
    assert document["restarts"][0]["slot"] == "n:2"
    assert document["components"]["split"]["executed"] == 200
    assert set(document) == {"schema", "version", *report.to_dict()}
