"""A worker that lives and does nothing any more, or crashes without a word: replaced, and its death explained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from squall import Config, LocalCluster, RunReport, TopologyBuilder
from squall.engine.report.run_report import Restart
from tests.process import parts

COUNT = 400
VICTIM = 100


def run_with(tmp_path: Path, how: str) -> RunReport:
    """The bolt is in a worker of its own: what it held is replayed, the rest flows."""
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(str(tmp_path), COUNT))
    builder.set_bolt("bolt", parts.Misbehaves(str(tmp_path), COUNT // 2, how)).shuffle_grouping("source")
    # Who crashes is seen to be gone, however long that takes.
    limit_secs = None if how == "segfault" else 1
    config = Config(workers=2, worker_timeout_secs=limit_secs, message_timeout_secs=600)
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        report = cluster.submit("stuck", builder.build(), config).wait_until_drained(timeout=90)
    assert set(parts.notes(tmp_path, "acked")) == set(parts.notes(tmp_path, "behaved")) == set(range(COUNT))
    return report


def death_by(report: RunReport, reason: str) -> Restart:
    """The death that was meant: on a slow machine another worker may stand still for as long, too."""
    found = [death for death in report.restarts if re.fullmatch(reason, death.reason) and death.error]
    assert found, report.restarts
    return found[0]


def test_worker_that_hangs_in_user_code_is_replaced_and_the_report_says_where(tmp_path: Path) -> None:
    death = death_by(run_with(tmp_path, "hang"), r"no progress for [\d.]+ s in bolt\[\d\]: killed by SIGKILL")
    assert death.rss_bytes > 10 << 20
    first, *stack = death.error.splitlines()
    assert first.startswith("hung at File ")
    assert any("in execute" in line and "parts.py" in line for line in stack)


def test_crash_is_in_the_report_with_its_python_stack(tmp_path: Path) -> None:
    death = death_by(run_with(tmp_path, "segfault"), "killed by SIGSEGV")
    first, *stack = death.error.splitlines()
    assert first == "Fatal Python error: Segmentation fault"
    assert any("in execute" in line and "parts.py" in line for line in stack)


def run_threads(tmp_path: Path, bolt: parts.Hangs, **settings: Any) -> RunReport:
    """The bolt is in another worker than the source."""
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(str(tmp_path), COUNT))
    builder.set_bolt("waits", bolt).shuffle_grouping("source")
    config = Config(**{"workers": 2, "message_timeout_secs": 600, **settings})
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        return cluster.submit("threads", builder.build(), config).wait_until_drained(timeout=90)


def test_hung_thread_of_a_blocking_bolt_ends_its_worker_and_fails_the_one_tuple(tmp_path: Path) -> None:
    bolt = parts.Hangs(str(tmp_path), victim=VICTIM)
    report = run_threads(tmp_path, bolt, execute_timeout_secs=1)
    assert set(parts.notes(tmp_path, "acked")) == set(range(COUNT))
    death = death_by(report, "exited with code 1")
    first, *stack = death.error.splitlines()
    assert re.search(r"waits\[(\d)\] hung in execute for [\d.]+ s, execute_timeout_secs is 1$", first)
    assert stack[0].startswith("Thread waits[")
    assert any("in execute" in line and "parts.py" in line for line in stack)
    assert str(VICTIM) in {record.message_id for record in report.failures["waits"].last if record.reason == "hung"}


def test_what_hangs_a_thread_every_time_is_a_dead_letter(tmp_path: Path) -> None:
    """Also where its tree has timed out by the time that the thread is given up."""
    bolt = parts.Hangs(str(tmp_path), victim=VICTIM, times=1000)
    report = run_threads(tmp_path, bolt, execute_timeout_secs=1, max_crashes=2, message_timeout_secs=0.7)
    assert set(parts.notes(tmp_path, "acked")) == set(range(COUNT)) - {VICTIM}
    assert report.dead_letters == 1
    (dead,) = parts.notes(tmp_path, "dead")
    assert dead[:2] == [VICTIM, "hung"]
    assert len(report.restarts) >= 2


def test_what_hangs_a_loop_every_time_is_a_dead_letter_though_its_tree_times_out_first(tmp_path: Path) -> None:
    """Nobody sees which tuple it is. Its tree is not under way any more when the worker is replaced; the replay is."""
    bolt = parts.HangsLoop(str(tmp_path), victim=VICTIM, times=1000)
    report = run_threads(tmp_path, bolt, worker_timeout_secs=1, message_timeout_secs=0.7, max_crashes=2)
    assert set(parts.notes(tmp_path, "acked")) == set(range(COUNT)) - {VICTIM}
    assert report.dead_letters == 1
    (dead,) = parts.notes(tmp_path, "dead")
    assert dead[:2] == [VICTIM, "worker died"]
    assert all(death.reason.startswith("no progress for ") for death in report.restarts)


def test_who_is_slow_but_below_its_limits_is_left_alone(tmp_path: Path) -> None:
    """The limits are one tuple's: a batch takes several times as long, in the loop as on a thread of its own."""
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(str(tmp_path), 60))
    builder.set_bolt("works", parts.Slow(0.05)).shuffle_grouping("source")
    builder.set_bolt("waits", parts.Hangs(str(tmp_path), secs=0.05)).shuffle_grouping("source")
    config = Config(workers=2, worker_timeout_secs=2, execute_timeout_secs=2, message_timeout_secs=600)
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        report = cluster.submit("slow", builder.build(), config).wait_until_drained(timeout=90)
    assert (report.acked, report.failed, report.restarts) == (60, 0, [])
