"""Links that break frames: every message is acked all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall import Config, LocalCluster, TopologyBuilder
from squall.scheduler.faults.fault import parse
from tests.process import parts
from tests.process.parts import notes

FAULTS = {
    "delay": ["delay 10%"],
    "everything": ["drop 2%", "duplicate 10%", "delay 5% by=1", "corrupt 2%", "corrupt 2% how=cut"],
}
MESSAGES = 400


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_links_lose_nothing(tmp_path: Path, seed: int, fault: str) -> None:
    """400 messages through two bolts on three workers: every one is acked, and was processed when it was."""
    directory = str(tmp_path)
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(directory, MESSAGES), parallelism=2).set_config(
        max_spout_pending=10  # hundreds of frames, some of which are broken whatever the seed
    )
    builder.set_bolt("pass", parts.Pass(), parallelism=3).shuffle_grouping("source")
    builder.set_bolt("end", parts.Seen(directory), parallelism=3).fields_grouping("pass", "n")
    with LocalCluster(slots_per_node=3) as cluster:
        config = Config(workers=3, batch_tuples=1, message_timeout_secs=3600)
        job = cluster.submit("numbers", builder.build(), config, active=False)
        job.wait_until_ready(100.0)
        for line in FAULTS[fault]:
            cluster.client.inject(parse(f"{line} for 600s seed {seed}"))
        job.activate()
        # What was lost is replayed when its loss is seen, not when the message timeout is over.
        report = job.wait_until_drained(100.0)
    assert (report.pending, report.timed_out) == (0, 0)
    assert set(notes(directory, "acked")) == set(range(MESSAGES))
    assert {n for _, n in notes(directory, "seen")} == set(range(MESSAGES))
    if fault == "everything":
        assert report.failures["source"].counts["frame lost"] > 0, "no fault happened"
