"""From a worker's death to the first replay, and to its replacement at work."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.effort import Effort
from benchmarks.recovery import Recovery, measure_recovery
from benchmarks.results import Part
from benchmarks.spread import milliseconds


def measure(effort: Effort) -> Part:
    """SystemExit if a message was lost."""
    rows, batches = _measured(effort.kills), _measured(max(3, effort.kills // 4), batches=True)
    # Storm's limits: its message timeout, process monitor and heartbeat.
    noticed = "noticed within 3 s, or by heartbeat 30 s"
    return Part(
        title="Death of a worker",
        about=f"{len(rows.replay_secs)} times SIGKILL, 2 workers under load, nothing lost; {len(batches.replay_secs)} "
        "times by batches, with 8,192 rows open a spout.\nStorm's column is by its defaults.",
        header=["from SIGKILL of a worker to", "median", "p99", "most", "Storm"],
        rows=[
            ["the first replayed emit", *milliseconds(rows.replay_secs), "the message times out, 30 to 60 s"],
            ["the replacement at work", *milliseconds(rows.working_secs), noticed],
            ["the first replayed batch", *milliseconds(batches.replay_secs), "as above"],
            ["the replacement at work, batches", *milliseconds(batches.working_secs), "as above"],
            ["all rows that it held replayed", *milliseconds(batches.replayed_secs), "as above"],
        ],
    )


def _measured(kills: int, batches: bool = False) -> Recovery:
    with tempfile.TemporaryDirectory(prefix="sq-bench-") as name:
        found = measure_recovery(kills, seed=kills, directory=Path(name), batches=batches)
    if found.lost or found.dead_letters or len(found.replay_secs) < kills:
        raise SystemExit(f"not a valid run: {found}")
    return found
