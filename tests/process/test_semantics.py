"""What Storm's users know, on real workers: acks, and failures of user code; the rest is in tests/storm_*.py."""

from __future__ import annotations

from pathlib import Path

from squall import Config, TopologyBuilder, run
from tests.process import parts
from tests.process.parts import notes


def test_every_message_reaches_the_end_and_is_acked_once(tmp_path: Path) -> None:
    directory = str(tmp_path)
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(directory, 500), parallelism=2)
    builder.set_bolt("pass", parts.Pass(), parallelism=3).shuffle_grouping("source")
    builder.set_bolt("end", parts.Seen(directory), parallelism=2).shuffle_grouping("pass")
    report = run(builder.build(), Config(workers=3))
    assert sorted(notes(directory, "acked")) == list(range(500))
    assert sorted(n for _, n in notes(directory, "seen")) == list(range(500))
    assert (report.emitted, report.acked, report.failed, report.pending) == (500, 500, 0, 0)
    assert report.drained
    assert report.restarts == []


def test_on_error_fail_keeps_the_worker(tmp_path: Path) -> None:
    directory = str(tmp_path)
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(directory, 100), parallelism=2)
    builder.set_bolt("refuse", parts.Refuse(directory, 50)).shuffle_grouping("source")
    report = run(builder.build(), Config(workers=2, on_error="fail"))
    assert report.restarts == []
    assert [row[:3] + row[4:] for row in notes(directory, "failed")] == [
        [50, "exception", "refuse", "ValueError: broken", 1]
    ]
    assert sorted(notes(directory, "acked")) == list(range(100))
