"""`python -m benchmarks` as a developer runs it: one part, wrong use, yardsticks that count every word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.corpus import Corpus
from benchmarks.drained import run_until_drained
from benchmarks.numbers import three_stages
from benchmarks.yardsticks import bare_queue, plain_loop
from squall import Config, LocalCluster

ROOT = Path(__file__).parents[2]


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_a_part_prints_its_table_and_keeps_nothing() -> None:
    before = {path: path.stat().st_mtime_ns for path in (ROOT / "benchmarks").iterdir()}
    done = benchmarks("start", "--quick", "--no-write")
    assert done.returncode == 0, done.stderr
    assert "| 2 workers | " in done.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.filterwarnings("error")
def test_runs_share_a_cluster_and_leave_nothing_on_it() -> None:
    with LocalCluster(slots_per_node=1) as cluster:
        for count in (10, 20):
            _, report = run_until_drained(three_stages(count, 1, False), Config(workers=1), cluster=cluster)
            assert report.acked == count
            assert cluster.names() == []


@pytest.mark.parametrize("yardstick", [plain_loop.run, bare_queue.run])
def test_a_yardstick_counts_every_word(yardstick: object, tmp_path: Path) -> None:
    corpus = Corpus.write(tmp_path / "text", ["a b c", "", "d e"] * 1000)
    assert callable(yardstick)
    measured = yardstick(corpus, 2, 3)
    assert (measured.lines, measured.words) == (9000, 15000)
