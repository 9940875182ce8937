"""A worker that lives and does nothing any more, or crashes without a word: replaced, and its death explained."""

from __future__ import annotations

from pathlib import Path

from squall import Config, LocalCluster, RunReport, TopologyBuilder
from tests.process import parts

COUNT = 400


def run_with(tmp_path: Path, how: str) -> RunReport:
    """The bolt is in a worker of its own: what it held is replayed, the rest flows."""
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(str(tmp_path), COUNT))
    builder.set_bolt("bolt", parts.Misbehaves(str(tmp_path), COUNT // 2, how)).shuffle_grouping("source")
    config = Config(workers=2, worker_timeout_secs=1, message_timeout_secs=600)
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        report = cluster.submit("stuck", builder.build(), config).wait_until_drained(timeout=40)
    assert report.acked == COUNT
    assert set(parts.notes(tmp_path, "behaved")) == set(range(COUNT))
    assert len(report.restarts) == 1
    assert report.restarts[0].rss_bytes > 10 << 20
    return report


def test_worker_that_hangs_in_user_code_is_replaced_and_the_report_says_where(tmp_path: Path) -> None:
    death = run_with(tmp_path, "hang").restarts[0]
    assert death.reason.startswith("no progress for ")
    assert death.reason.endswith(" s: killed by SIGKILL")
    first, *stack = death.error.splitlines()
    assert first.startswith("hung at File ")
    assert any("in execute" in line and "parts.py" in line for line in stack)


def test_worker_that_was_stopped_is_replaced(tmp_path: Path) -> None:
    death = run_with(tmp_path, "stop").restarts[0]
    assert death.reason.startswith("no progress for ")


def test_crash_is_in_the_report_with_its_python_stack(tmp_path: Path) -> None:
    death = run_with(tmp_path, "segfault").restarts[0]
    assert death.reason == "killed by SIGSEGV"
    first, *stack = death.error.splitlines()
    assert first == "Fatal Python error: Segmentation fault"
    assert any("in execute" in line and "parts.py" in line for line in stack)
