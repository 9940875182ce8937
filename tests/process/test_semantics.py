"""What Storm's users know, on real workers: failures, cycles, big values, state; the rest is in tests/storm_*.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall import BasicBolt, Bolt, Config, RunReport, Spout, TopologyBuilder, run
from tests.process import parts
from tests.process.parts import notes


def chain(spout: Spout, *bolts: tuple[str, Bolt | BasicBolt, int]) -> TopologyBuilder:
    """spout "source" and bolts in a row, shuffle-grouped."""
    builder = TopologyBuilder()
    builder.set_spout("source", spout, parallelism=2 if isinstance(spout, parts.Numbers) else 1)
    before = "source"
    for name, bolt, parallelism in bolts:
        builder.set_bolt(name, bolt, parallelism=parallelism).shuffle_grouping(before)
        before = name
    return builder


def test_every_message_reaches_the_end_and_is_acked_once(tmp_path: Path) -> None:
    directory = str(tmp_path)
    topology = chain(
        parts.Numbers(directory, 500), ("a", parts.Pass(), 3), ("b", parts.Pass(), 2), ("end", parts.Seen(directory), 2)
    ).build()
    report = run(topology, Config(workers=3))
    assert sorted(notes(directory, "acked")) == list(range(500))
    assert sorted(n for _, n in notes(directory, "seen")) == list(range(500))
    check_totals(report, 500)


def check_totals(report: RunReport, messages: int) -> None:
    assert (report.emitted, report.acked, report.failed, report.pending) == (messages, messages, 0, 0)
    assert report.drained
    assert report.restarts == []


def test_on_error_fail_keeps_the_worker(tmp_path: Path) -> None:
    directory = str(tmp_path)
    topology = chain(
        parts.Numbers(directory, 100), ("refuse", parts.Refuse(directory, 50), 1),
        ("end", parts.Seen(directory), 1),
    ).build()
    report = run(topology, Config(workers=2, on_error="fail"))
    assert report.restarts == []
    assert [row[:3] + row[4:] for row in notes(directory, "failed")] == [
        [50, "exception", "refuse", "ValueError: broken", 1]
    ]
    assert sorted(notes(directory, "acked")) == list(range(100))


def test_a_cycle_ends_when_its_tuples_do(tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(str(tmp_path), 40), parallelism=2)
    countdown = builder.set_bolt("countdown", parts.Countdown(), parallelism=3)
    countdown.shuffle_grouping("source").shuffle_grouping("countdown")
    report = run(builder.build(), Config(workers=2))
    check_totals(report, 40)
    assert report.components["countdown"].executed == sum(n + 1 for n in range(40))


@pytest.mark.parametrize("arena_bytes", [0, 1 << 20])
def test_big_values_arrive_unchanged(tmp_path: Path, arena_bytes: int) -> None:
    topology = chain(parts.Blobs(), ("end", parts.CheckBlobs(str(tmp_path)), 2)).build()
    report = run(topology, Config(workers=2, arena_bytes=arena_bytes))
    assert report.acked == 6
    seen = notes(tmp_path, "seen")
    assert sorted(seen) == [[size, True, "bytes"] for size in (0, 1, 65_535, 65_536, 300_000, 3_000_000)]


def test_state_dir_outlives_the_worker(tmp_path: Path) -> None:
    directory = str(tmp_path)
    topology = chain(parts.Numbers(directory, 100), ("remembers", parts.Remembers(directory), 1)).build()
    report = run(topology, Config(workers=2), name="memory")
    assert [restart.reason for restart in report.restarts] == ["exited with code 0"]
    starts = notes(directory, "started")
    assert [start[:2] for start in starts] == [[1, 0], [2, 50]]
    assert starts[0][2] == starts[1][2] == report.restarts[0].slot
    assert starts[0][3] == "memory"
    assert set(notes(directory, "acked")) == set(range(100))
