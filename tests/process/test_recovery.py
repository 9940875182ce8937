"""A worker that is killed in the middle: everything is acked, nothing is counted twice or lost."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import psutil
import pytest

from examples import word_count
from squall import Config, LocalCluster, TopologyBuilder
from tests.process import parts
from tests.process.cli import start
from tests.process.history_check import broken_rules
from tests.process.standing_tools import ENDLESS
from tests.process.test_examples import read_counts, read_ledger
from tests.process.waiting import wait_for

LINES = [f"w{number % 97} w{number % 89} same w{number % 7}" for number in range(30_000)]


@pytest.fixture
def text(tmp_path: Path) -> list[str]:
    """Two files of half the lines each."""
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for part, path in enumerate(paths):
        path.write_text("\n".join(LINES[part::2]) + "\n")
    return [str(path) for path in paths]


@pytest.fixture
def enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file that the lines of a word count do not end without: there are some left for every victim."""
    monkeypatch.setattr(word_count, "FeedSpout", partial(parts.Lingers, str(tmp_path), len(LINES) // 3))
    return tmp_path / "enough"


def test_killed_workers_lose_nothing(text: list[str], tmp_path: Path, enough: Path) -> None:
    """The message timeout is an hour; only the deaths themselves can bring the trees back."""
    out, victims = tmp_path / "result", ["node-1:6700", "node-2:6700"] * 2
    config = Config(workers=2, message_timeout_secs=3600)
    with LocalCluster(nodes=2, slots_per_node=1) as cluster:
        job = cluster.submit("count", word_count.topology([*text, "--out", str(out)]), config)
        job.wait_until_ready(timeout=60)
        for number, victim in enumerate(victims, start=1):
            acked = job.stats().acked
            wait_for("some more acks", lambda before=acked: job.stats().acked > before + 200)
            cluster.inject("kill", victim)
            wait_for("the replacement", lambda n=number: sum(
                restart.ready_after_secs is not None for restart in job.stats().restarts) >= n)
        enough.touch()
        report = job.wait_until_drained(timeout=90)
        job.kill(0.0)
        assert broken_rules(cluster.run_dir) == []
    assert [restart.reason for restart in report.restarts] == ["killed by SIGKILL"] * len(victims)
    assert [restart.slot for restart in report.restarts] == victims
    for restart in report.restarts:
        # A worker may be at work before its supervisor has taken note that it is ready.
        assert 0 < (restart.ready_after_secs or 0) < 20
        assert 0 < (restart.working_after_secs or 0) < 20
    assert (report.timed_out, report.pending) == (0, 0)
    assert read_counts(out) == Counter(" ".join(LINES).split())
    assert read_ledger(out) == {
        (part, offset): 4 for part in range(2) for offset in range(len(LINES[part::2]))
    }


def test_a_killed_launcher_leaves_nothing() -> None:
    with start("run", ENDLESS, "--workers", "2", "--interval", "0.1") as process:
        stream = process.stderr
        assert stream is not None
        wait_for("some acks", lambda: re.search(r"acked [1-9]", stream.readline()))
        run_dir = psutil.Process(process.pid).children()[0].environ()["SQUALL_RUN_DIR"]
        # Nimbus, supervisor, forking parent, two workers.
        everyone = wait_for("all processes", lambda: len(found := _processes_of(run_dir)) >= 5 and found)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert everyone
    wait_for("every process to end", lambda: not any(p.is_running() for p in everyone))
    wait_for("the run directory to go", lambda: not Path(run_dir).exists())


def _processes_of(run_dir: str) -> list[psutil.Process]:
    every = psutil.process_iter(["environ"])
    return [process for process in every if (process.info["environ"] or {}).get("SQUALL_RUN_DIR") == run_dir]


def test_what_a_killed_worker_had_counted_is_in_the_report(tmp_path: Path) -> None:
    """Users' counters are in shared memory: every tuple executed before the kill is there, and every one after it."""
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Unending(str(tmp_path)))
    builder.set_bolt("counted", parts.Counted(str(tmp_path))).shuffle_grouping("source")
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job = cluster.submit("counted", builder.build(), Config(workers=2))
        wait_for("some tuples", lambda: len(parts.notes(tmp_path, "counted")) > 100)
        cluster.inject("kill", parts.notes(tmp_path, "counted")[0][0])
        wait_for("its replacement's work", lambda: any(r.working_after_secs for r in job.stats().restarts))
        (tmp_path / "enough").touch()
        report = job.wait_until_drained(timeout=90)
    assert len(report.restarts) == 1
    executed = len(parts.notes(tmp_path, "counted"))
    # One tuple may have been noted and not yet counted when the kill came.
    assert executed - 1 <= report.metrics["counted"]["executed"] <= executed
    assert list(report.metrics["counted"]["last"].values()) == [parts.notes(tmp_path, "counted")[-1][1]]
