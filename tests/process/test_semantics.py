"""What Storm's users know, on real workers: groupings, anchoring, failures, timeouts, ticks, cycles, threads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from squall import BasicBolt, Bolt, Config, RunReport, Spout, TopologyBuilder, run
from tests.process import parts
from tests.process.parts import notes

WORKERS = pytest.mark.parametrize("workers", [1, 2, 3])


def chain(spout: Spout, *bolts: tuple[str, Bolt | BasicBolt, int]) -> TopologyBuilder:
    """spout "source" and bolts in a row, shuffle-grouped."""
    builder = TopologyBuilder()
    builder.set_spout("source", spout, parallelism=2 if isinstance(spout, parts.Numbers) else 1)
    before = "source"
    for name, bolt, parallelism in bolts:
        builder.set_bolt(name, bolt, parallelism=parallelism).shuffle_grouping(before)
        before = name
    return builder


@WORKERS
def test_every_message_reaches_the_end_and_is_acked_once(tmp_path: Path, workers: int) -> None:
    directory = str(tmp_path)
    topology = chain(
        parts.Numbers(directory, 500), ("a", parts.Pass(), 3), ("b", parts.Pass(), 2), ("end", parts.Seen(directory), 2)
    ).build()
    report = run(topology, Config(workers=workers))
    assert sorted(notes(directory, "acked")) == list(range(500))
    assert sorted(n for _, n in notes(directory, "seen")) == list(range(500))
    check_totals(report, 500)


def check_totals(report: RunReport, messages: int) -> None:
    assert (report.emitted, report.acked, report.failed, report.pending) == (messages, messages, 0, 0)
    assert report.drained
    assert report.restarts == []


@WORKERS
def test_fields_grouping_keeps_a_key_in_one_task(tmp_path: Path, workers: int) -> None:
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(str(tmp_path), 300), parallelism=2)
    builder.set_bolt("pass", parts.Pass(), parallelism=3).shuffle_grouping("source")
    builder.set_bolt("end", parts.Seen(str(tmp_path)), parallelism=4).fields_grouping("pass", "n")
    run(builder.build(), Config(workers=workers))
    again = {n: index for index, n in notes(tmp_path, "seen")}
    (tmp_path / "seen").unlink()
    run(builder.build(), Config(workers=workers % 3 + 1))
    assert {n: index for index, n in notes(tmp_path, "seen")} == again
    assert len(set(again.values())) == 4


@WORKERS
def test_several_tasks_per_executor_and_all_grouping(tmp_path: Path, workers: int) -> None:
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(str(tmp_path), 20))
    builder.set_bolt("end", parts.Seen(str(tmp_path)), parallelism=3, tasks=6).all_grouping("source")
    report = run(builder.build(), Config(workers=workers))
    assert Counter(index for index, _ in notes(tmp_path, "seen")) == dict.fromkeys(range(6), 20)
    assert report.acked == 20


@WORKERS
def test_a_tuple_anchored_to_two_trees_belongs_to_both(tmp_path: Path, workers: int) -> None:
    directory = str(tmp_path)
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(directory, 200))
    builder.set_bolt("pairs", parts.Pairs()).global_grouping("source")
    builder.set_bolt("refuse", parts.Refuse(directory, victim=1, how="fail"), parallelism=2).shuffle_grouping("pairs")
    builder.set_bolt("end", parts.Seen(directory), parallelism=2).shuffle_grouping("refuse")
    report = run(builder.build(), Config(workers=workers))
    assert sorted(notes(directory, "acked")) == list(range(200))
    # 0 + 1 was refused: both of its trees failed, at once, with the bolt's word for it.
    failed = notes(directory, "failed")
    assert sorted(row[0] for row in failed) == [0, 1]
    assert {(*row[1:3], row[4]) for row in failed} == {("failed", "refuse", "not now")}
    assert (report.failed, report.replayed) == (2, 2)


@pytest.mark.parametrize(("how", "reason", "error"), [
    ("raise", "exception", "ValueError: broken"), ("exit", "worker died", ""),
])
@pytest.mark.parametrize("workers", [2, 3])
def test_user_code_that_kills_its_worker(tmp_path: Path, workers: int, how: str, reason: str, error: str) -> None:
    directory = str(tmp_path)
    topology = chain(
        parts.Numbers(directory, 400), ("refuse", parts.Refuse(directory, 333, how), 2),
        ("end", parts.Seen(directory), 2),
    ).build()
    report = run(topology, Config(workers=workers, message_timeout_secs=3600, max_spout_pending=20))
    assert set(notes(directory, "acked")) == set(range(400))
    assert {n for _, n in notes(directory, "seen")} == set(range(400))
    assert [restart.reason for restart in report.restarts] == [
        "exited with code 1" if how == "raise" else "exited with code 7"
    ]
    if how == "raise":
        assert "refuse[" in report.restarts[0].error
        assert error in report.restarts[0].error
    # The spout of the dead worker starts afresh and is told nothing; the other one is told why, at once.
    assert {row[1] for row in notes(directory, "failed")} <= {reason, "worker died"}


def test_on_error_fail_keeps_the_worker(tmp_path: Path) -> None:
    directory = str(tmp_path)
    topology = chain(
        parts.Numbers(directory, 100), ("refuse", parts.Refuse(directory, 50, "raise"), 1),
        ("end", parts.Seen(directory), 1),
    ).build()
    report = run(topology, Config(workers=2, on_error="fail"))
    assert report.restarts == []
    assert [row[:3] + row[4:] for row in notes(directory, "failed")] == [
        [50, "exception", "refuse", "ValueError: broken", 1]
    ]
    assert sorted(notes(directory, "acked")) == list(range(100))


def test_a_message_nobody_acks_times_out(tmp_path: Path) -> None:
    directory = str(tmp_path)
    topology = chain(parts.OneShot(directory, 30), ("forget", parts.Forget(), 2)).build()
    report = run(topology, Config(workers=2, message_timeout_secs=0.3))
    assert sorted(notes(directory, "failed")) == [[n, "timeout"] for n in range(30)]
    assert notes(directory, "acked") == []
    assert (report.failed, report.timed_out, report.pending) == (30, 30, 0)


def test_without_ackers_a_message_is_acked_as_it_is_emitted(tmp_path: Path) -> None:
    directory = str(tmp_path)
    spout = parts.OneShot(directory, 300)
    topology = chain(spout, ("pass", parts.Pass(), 2), ("end", parts.Seen(directory), 2)).build()
    run(topology, Config(workers=2, ackers=0))
    assert notes(directory, "acked") == list(range(300))
    assert sorted(n for _, n in notes(directory, "seen")) == list(range(300))


def test_untracked_tuples_arrive_and_are_waited_for(tmp_path: Path) -> None:
    directory = str(tmp_path)
    spout = parts.OneShot(directory, 3000, tracked=False)
    topology = chain(spout, ("waits", parts.Waits(0.0001), 2), ("end", parts.Seen(directory), 2)).build()
    report = run(topology, Config(workers=2))
    assert sorted(n for _, n in notes(directory, "seen")) == list(range(3000))
    assert report.components["end"].executed == 3000


def test_fewer_ackers_than_workers(tmp_path: Path) -> None:
    directory = str(tmp_path)
    spout = parts.Numbers(directory, 300)
    topology = chain(spout, ("pass", parts.Pass(), 3), ("end", parts.Seen(directory), 3)).build()
    check_totals(run(topology, Config(workers=3, ackers=1)), 300)
    assert sorted(notes(directory, "acked")) == list(range(300))


def test_a_blocking_bolt_does_not_hold_up_its_worker(tmp_path: Path) -> None:
    directory = str(tmp_path)
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(directory, 60))
    builder.set_bolt("waits", parts.WaitsForTicks(directory, 5), parallelism=2).shuffle_grouping("source")
    builder.set_bolt("end", parts.Seen(directory)).shuffle_grouping("waits")
    builder.set_bolt("ticks", parts.Ticks(directory)).shuffle_grouping("waits").set_config(tick_tuple_freq_secs=0.02)
    report = run(builder.build(), Config(workers=1))
    check_totals(report, 60)
    assert notes(directory, "ticks")[0] == [0.02, "__system", "__tick"]


@WORKERS
def test_a_cycle_ends_when_its_tuples_do(tmp_path: Path, workers: int) -> None:
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(str(tmp_path), 40), parallelism=2)
    countdown = builder.set_bolt("countdown", parts.Countdown(), parallelism=3)
    countdown.shuffle_grouping("source").shuffle_grouping("countdown")
    report = run(builder.build(), Config(workers=workers))
    check_totals(report, 40)
    assert report.components["countdown"].executed == sum(n + 1 for n in range(40))


@pytest.mark.parametrize("arena_bytes", [0, 1 << 20, 64 << 20])
def test_big_values_arrive_unchanged(tmp_path: Path, arena_bytes: int) -> None:
    topology = chain(parts.Blobs(), ("end", parts.CheckBlobs(str(tmp_path)), 2)).build()
    report = run(topology, Config(workers=2, arena_bytes=arena_bytes))
    assert report.acked == 6
    seen = notes(tmp_path, "seen")
    assert sorted(seen) == [[size, True, "bytes"] for size in (0, 1, 65_535, 65_536, 300_000, 3_000_000)]


def test_a_small_window_slows_the_spout_and_loses_nothing(tmp_path: Path) -> None:
    directory = str(tmp_path)
    topology = chain(
        parts.Numbers(directory, 3000), ("pass", parts.Pass(), 2), ("end", parts.Seen(directory), 2)
    ).build()
    check_totals(run(topology, Config(workers=2, link_window_bytes=64 * 1024, batch_tuples=1)), 3000)


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
