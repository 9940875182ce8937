"""From a daemon's death to its successor at work, and the cost of an idle worker."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks.adoption import WORKERS, measure_adoption, measure_idle, standing
from benchmarks.effort import Effort
from benchmarks.results import Part
from benchmarks.spread import milliseconds


def measure(effort: Effort) -> Part:
    """SystemExit if a message was lost."""
    with tempfile.TemporaryDirectory(prefix="sq-bench-") as name, standing(Path(name) / "run") as run_dir:
        found = measure_adoption(run_dir, effort.daemon_kills, seed=effort.daemon_kills, directory=Path(name))
        shares = measure_idle(run_dir, effort.settle_secs, effort.idle_secs)
    if found.lost or found.dead_letters or found.workers_died:
        raise SystemExit(f"not a valid run: {found}")
    middle, most = (f"{share * 100:.1f} %" for share in (statistics.median(shares), max(shares)))
    return Part(
        title="Death of a daemon, and idling",
        about=f"{effort.daemon_kills} times SIGKILL of each, {WORKERS} workers under load, nothing lost; then "
        f"{effort.idle_secs:g} s of {WORKERS} idle workers.",
        header=["what", "median", "p99", "most", "Storm"],
        rows=[
            ["SIGKILL of the supervisor to all workers adopted", *milliseconds(found.adopted_secs), "missed for 60 s"],
            ["SIGKILL of Nimbus to an answer of the next", *milliseconds(found.answer_secs), "20 s, with a standby"],
            ["an idle worker's share of a core", middle, "", most, ""],
        ],
    )
