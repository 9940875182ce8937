"""A run over links that break frames, with workers that die at named points: every message is acked all the same."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from squall import Config, RunReport, TopologyBuilder, run
from tests.process import parts
from tests.process.parts import notes

FAULTS = {
    "drop": "drop:0.05",
    "duplicate": "duplicate:0.3",
    "delay": "delay:0.1",
    "reorder": "reorder:0.1",
    "corrupt": "corrupt:0.05",
    "truncate": "truncate:0.05",
    "everything": "drop:0.02,duplicate:0.1,reorder:0.05,corrupt:0.02,truncate:0.02",
}
MESSAGES = 400


def run_numbers(directory: str, **options: Any) -> RunReport:
    """400 messages through two bolts on three workers: every one is acked, and was processed when it was."""
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(directory, MESSAGES), parallelism=2).set_config(
        max_spout_pending=10  # hundreds of frames, some of which are broken whatever the seed
    )
    builder.set_bolt("pass", parts.Pass(), parallelism=3).shuffle_grouping("source")
    builder.set_bolt("end", parts.Seen(directory), parallelism=3).fields_grouping("pass", "n")
    report = run(builder.build(), Config(workers=3, batch_tuples=1, **options))
    assert report.pending == 0
    assert set(notes(directory, "acked")) == set(range(MESSAGES))
    assert {n for _, n in notes(directory, "seen")} == set(range(MESSAGES))
    return report


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_links_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, fault: str
) -> None:
    monkeypatch.setenv("SQUALL_LINK_FAULTS", FAULTS[fault])
    monkeypatch.setenv("SQUALL_LINK_SEED", str(seed))
    report = run_numbers(str(tmp_path))
    # What was lost is replayed when its loss is seen, not when the 30 s of the message timeout are over.
    assert report.timed_out == 0
    if fault in ("drop", "corrupt", "truncate", "everything"):
        assert report.failures["source"].counts["frame lost"] > 0  # the faults did happen


# A worker publishes once in a millisecond, so a short run passes there less often.
@pytest.mark.parametrize(
    ("point", "passes"),
    [*product(("receive", "acks", "step", "send", "credit"), (1, 7)), ("publish", 1), ("publish", 3)],
)
def test_workers_that_die_at_a_point_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, passes: int
) -> None:
    monkeypatch.setenv("SQUALL_FAULT_POINTS", f"worker.{point}:{passes}")
    report = run_numbers(str(tmp_path), message_timeout_secs=0.5)
    assert {restart.reason for restart in report.restarts} == {"killed by SIGKILL"}
