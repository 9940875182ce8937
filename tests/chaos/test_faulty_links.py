"""Links that break frames, and workers that die at effects: every message is acked all the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from squall import Config, LocalCluster, RunReport, TopologyBuilder
from squall.scheduler.common.role import RoleKind
from squall.scheduler.faults.fault import parse
from tests.chaos.dying_python import dying_processes
from tests.process import parts
from tests.process.parts import notes

FAULTS = {
    "delay": ["delay 10%"],
    "everything": ["drop 2%", "duplicate 10%", "delay 5% by=1", "corrupt 2%", "corrupt 2% how=cut"],
}
MESSAGES = 400
DEATHS = 3
MOST_EFFECTS = 300
"""Of a worker in a short run: the first of all, of its start, to the last."""


def run_numbers(directory: str, faults: list[str], seed: int, **options: Any) -> RunReport:
    """400 messages through two bolts on three workers: every one is acked, and was processed when it was."""
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(directory, MESSAGES), parallelism=2).set_config(
        max_spout_pending=10  # hundreds of frames, some of which are broken whatever the seed
    )
    builder.set_bolt("pass", parts.Pass(), parallelism=3).shuffle_grouping("source")
    builder.set_bolt("end", parts.Seen(directory), parallelism=3).fields_grouping("pass", "n")
    with LocalCluster(slots_per_node=3) as cluster:
        config = Config(workers=3, batch_tuples=1, **options)
        job = cluster.submit("numbers", builder.build(), config, active=not faults)
        if faults:
            job.wait_until_ready(60.0)
            for fault in faults:
                cluster.client.inject(parse(f"{fault} for 600s seed {seed}"))
            job.activate()
        report = job.wait_until_drained(100.0)
    assert report.pending == 0
    assert set(notes(directory, "acked")) == set(range(MESSAGES))
    assert {n for _, n in notes(directory, "seen")} == set(range(MESSAGES))
    return report


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_links_lose_nothing(tmp_path: Path, seed: int, fault: str) -> None:
    report = run_numbers(str(tmp_path), FAULTS[fault], seed)
    # What was lost is replayed when its loss is seen, not when the 30 s of the message timeout are over.
    assert report.timed_out == 0
    if fault == "everything":
        assert report.failures["source"].counts["frame lost"] > 0  # the faults did happen


@pytest.mark.parametrize("number", range(DEATHS))
def test_workers_that_die_at_an_effect_lose_nothing(tmp_path: Path, seed: int, number: int) -> None:
    nth = random.Random(f"{seed} {number}").randint(1, MOST_EFFECTS)
    print(f"dies at effect {nth}")
    with dying_processes(tmp_path) as book:
        book.arm(RoleKind.WORKER, nth)
        report = run_numbers(str(tmp_path), [], seed, message_timeout_secs=0.5)
        assert book.died(RoleKind.WORKER)
    assert {restart.reason for restart in report.restarts} == {"killed by SIGKILL"}
