"""`python -m benchmarks` as a developer runs it: one part."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
