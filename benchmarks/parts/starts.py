"""From starting `squall run` to its first tuple."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.effort import Effort
from benchmarks.results import Part
from benchmarks.spread import milliseconds

ROOT = Path(__file__).resolve().parents[2]


def measure(effort: Effort) -> Part:
    with tempfile.TemporaryDirectory(prefix="sq-bench-") as name:
        text = Path(name) / "text"
        text.write_text("a b c\n" * 10)
        rows = [
            [f"{workers} worker{'s' * (workers > 1)}", *milliseconds([first_tuple_secs(text, workers) for _ in times])]
            for times in [range(2 * effort.rounds)]
            for workers in (1, 2)
        ]
    return Part(
        title="Start",
        about=f"From starting the process `squall run` to the first call that emits; {2 * effort.rounds} times each.",
        header=["what", "median", "p99", "most"],
        rows=rows,
    )


def first_tuple_secs(text: Path, workers: int) -> float:
    mark = text.with_name("mark")
    mark.unlink(missing_ok=True)
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "squall", "run", "benchmarks.word_count:topology", "--app-dir", str(ROOT),
         "--workers", str(workers), "--quiet", "--", str(text), str(mark)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    return float(mark.read_text()) - began
