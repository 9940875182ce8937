"""What the benchmarks keep and show: ratios, spreads, what could not be measured, latencies from due to acked."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.corpus import Corpus
from benchmarks.measured import Measured, Unavailable
from benchmarks.paced import BUCKETS, Due, Latency, Pace, bucket_of, percentile_ms, read_histogram
from benchmarks.results import Curve, Part, Plot, keep, read_kept, throughput_rows
from benchmarks.rounds import Yardstick, alternate


def corpus(path: Path) -> Corpus:
    return Corpus.write(path / "text", ["a b", "c"])


def steady(words_per_sec: float) -> Yardstick:
    def run(text: Corpus, workers: int, repeat: int) -> Measured:
        return Measured(text.words * repeat / words_per_sec, text.lines * repeat, text.words * repeat)

    return Yardstick(f"{words_per_sec:g}", run, 1, 2)


def absent(asked: list[int]) -> Yardstick:
    def run(text: Corpus, workers: int, repeat: int) -> Measured:
        asked.append(workers)
        raise Unavailable("no wheel for this Python")

    return Yardstick("absent", run, 1, 1)


def test_ratios_are_of_medians(tmp_path: Path) -> None:
    slow, fast = alternate([steady(1e6), steady(3e6)], corpus(tmp_path), 3)
    assert throughput_rows([slow, fast], ("1e+06",)) == [
        ["1e+06", "1.00", "1.00 to 1.00", "1.00"],
        ["3e+06", "3.00", "3.00 to 3.00", "3.00"],
    ]


def test_what_cannot_be_had_is_named_and_asked_once(tmp_path: Path) -> None:
    asked: list[int] = []
    found = alternate([absent(asked), steady(1e6)], corpus(tmp_path), 3)
    assert asked == [1]
    rows = throughput_rows(found, ("absent",))
    assert rows[0] == ["absent", "not measured: no wheel for this Python", "", ""]
    assert rows[1] == ["1e+06", "1.00", "1.00 to 1.00", ""]


def part(title: str) -> Part:
    plot = Plot("p", "P", "x", "y", [Curve("c", [1.0], [2.0])], bars=[("b", 2.0, 1.0, 3.0)])
    return Part(title, "About.", ["what", "figure"], [["a|b", "1"]], [plot])


def test_a_part_is_replaced_and_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    keep({"storm": part("Storm"), "start": part("old")}, path)
    keep({"start": part("new")}, path)
    kept = read_kept(path)
    assert {name: each.title for name, each in kept.items()} == {"storm": "Storm", "start": "new"}
    assert kept["storm"].plots == part("Storm").plots
    assert list(tmp_path.iterdir()) == [path]


def test_percentiles_are_upper_edges() -> None:
    histogram = [0] * BUCKETS
    histogram[bucket_of(1e-3)] += 98
    histogram[bucket_of(1e-1)] += 2
    found = Latency.of(histogram)
    assert found.p50 == pytest.approx(1.0, rel=0.1)
    assert found.p99 == pytest.approx(100.0, rel=0.1)
    assert found.p50 >= 1.0
    assert found.p999 == found.p99
    assert math.isnan(percentile_ms([0] * BUCKETS, 0.5))
    assert (bucket_of(0.0), bucket_of(1e9)) == (0, BUCKETS - 1)


def test_a_line_counts_from_when_it_was_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    only: Any = SimpleNamespace(component_id="lines", task_index=0, component_tasks=lambda component: [1])
    due = Due(Pace(2.0, 3.0, str(tmp_path)), only)
    assert due.count() == 1
    # The spout stood still for eight seconds: what was due then is late, and says so.
    now = 108.0
    assert due.count() == 17
    due.acked(range(17))
    due.write()
    histogram = read_histogram(tmp_path)
    assert sum(histogram) == sum(1 for number in range(17) if number * 0.5 >= 3.0)
    assert histogram[bucket_of(8.0 - 3.0)] == 1
