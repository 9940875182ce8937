"""Taps: components see what they would see without, and the logs tell what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from squall import (
    BasicBolt,
    BasicCollector,
    Bolt,
    BoltCollector,
    Config,
    CustomGrouping,
    ReplayingSpout,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    UsageError,
)
from squall.chaos.checker import Run, judge, learn, read_run
from squall.chaos.tapping import STEMS_FROM, Tapping
from squall.chaos.taps import sinks_of, tap
from squall.testing import SimulatedCluster, complete_topology

LINES = ["a b c", "b", "", "c c", "d e f g"] * 8


class Lines(ReplayingSpout):
    outputs = ("number", "text")

    def read(self) -> Iterator[tuple[Any, Any]]:
        for number, text in enumerate(LINES):
            yield number, [number, text]


class Split(BasicBolt):
    outputs: ClassVar = {"default": ("word",), "lengths": ("number", "words")}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        assert tup.fields == ("number", "text")
        assert STEMS_FROM not in tup
        number, text = tup
        for word in text.split():
            collector.emit((word,))
        collector.emit([number, len(text.split())], stream="lengths")


class Keeps(BasicBolt):
    """Keeps every tuple: each must stay what it was."""

    outputs = ("word",)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.kept.append(tup)
        assert all(len(one.values) == 1 for one in self.kept)
        collector.emit(tup.values)


class Joins(Bolt):
    """Three tuples become one; the rest at a tick."""

    outputs = ("words",)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            assert tup.fields == ("rate_secs",)
            self.collector.ack(tup)
        else:
            self.held.append(tup)
        if len(self.held) >= 3 or tup.is_tick:
            self.collector.emit((sorted(one["word"] for one in self.held),), anchors=iter(self.held))
            for one in self.held:
                self.collector.ack(one)
            self.held = []


class Sink(BasicBolt):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        dict(zip(tup.fields, tup.values, strict=True))


class First(CustomGrouping):
    def prepare(self, context: TopologyContext, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        self.target = list(target_tasks[:1])

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> list[int]:
        assert len(values) == 1
        return self.target


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("lines", Lines())
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("keeps", Keeps(), parallelism=2).fields_grouping("split", "word")
    builder.set_bolt("joins", Joins(), parallelism=2).custom_grouping("keeps", First()).set_config(
        tick_tuple_freq_secs=1
    )
    sink = builder.set_bolt("sink", Sink()).shuffle_grouping("joins").shuffle_grouping("split", stream="lengths")
    sink.all_grouping("keeps")
    return builder.build()


def run(directory: Path, name: str, workers: int = 1, fail_every: int = 0, of: Topology | None = None) -> Run:
    path = directory / name
    path.mkdir()
    tapped = tap(of or topology(), Tapping(str(path), ("sink",), fail_every=fail_every))
    with SimulatedCluster(tapped, Config(workers=workers)) as cluster:
        cluster.run()
    return read_run(path)


def test_components_emit_what_they_emit_without_taps(tmp_path: Path) -> None:
    plain = complete_topology(topology())
    tapped = complete_topology(tap(topology(), Tapping(str(tmp_path), ("sink",))))
    for stream in ("lines", "split", "split/lengths", "keeps"):
        assert [row[:-1] for row in tapped[stream]] == plain[stream]
    assert sorted(word for row in tapped["joins"] for word in row[0]) == sorted(word for (word,) in plain["keeps"])


def test_each_way_into_a_sink_has_a_law_of_its_own(tmp_path: Path) -> None:
    laws = learn([run(tmp_path, "first"), run(tmp_path, "second", workers=3, fail_every=4)])
    assert {law.label: law.asks for law in laws} == {
        "sink from split/lengths": "values",
        "sink from keeps/default": "values",
        "sink from joins/default": "presence",
    }
    verdict = judge(run(tmp_path, "third", workers=2), laws)
    assert verdict.good
    assert (verdict.messages, verdict.ok) == (len(LINES), len(LINES))


def test_a_message_that_is_told_to_have_failed_comes_again(tmp_path: Path) -> None:
    again = run(tmp_path, "again", fail_every=3)
    twice = [message for message in again.messages.values() if message.emits == 2]
    assert 0 < len(twice) < len(LINES)
    assert all(message.fails == 1 and message.acked_ns is not None for message in twice)


def test_deaths_lose_nothing_and_repeat_only_what_was_emitted_again(tmp_path: Path) -> None:
    laws = learn([run(tmp_path, "first"), run(tmp_path, "second", fail_every=4)])
    path = tmp_path / "killed"
    path.mkdir()
    tapped = tap(topology(), Tapping(str(path), ("sink",)))
    with SimulatedCluster(tapped, Config(workers=3)) as cluster:
        for turn in range(60):
            cluster.step()
            if turn % 6 == 3:
                cluster.kill(turn // 6 % 3)
                cluster.step()
                cluster.restart(turn // 6 % 3)
        cluster.run()
    verdict = judge(read_run(path), laws)
    assert verdict.good
    assert verdict.recovered > 0
    assert verdict.duplicates > 0


def test_groupings_that_decide_the_task_are_held_to_it(tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", Lines())
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    sink = builder.set_bolt("sink", Sink(), parallelism=3).fields_grouping("split", "word")
    sink.all_grouping("split", stream="lengths").shuffle_grouping("lines")
    built = builder.build()
    laws = learn([run(tmp_path, "first", of=built), run(tmp_path, "second", workers=3, fail_every=4, of=built)])
    assert {law.label: (law.asks, law.placed) for law in laws} == {
        "sink from split/default": ("values", True),
        "sink from split/lengths": ("values", True),
        "sink from lines/default": ("values", False),
    }
    verdict = judge(run(tmp_path, "third", workers=2, fail_every=3, of=built), laws)
    assert verdict.good
    assert verdict.not_shown == []


def test_without_ackers_every_ack_comes_early(tmp_path: Path) -> None:
    laws = learn([run(tmp_path, "first"), run(tmp_path, "second", fail_every=4)])
    path = tmp_path / "untracked"
    path.mkdir()
    with SimulatedCluster(tap(topology(), Tapping(str(path), ("sink",))), Config(workers=2, ackers=0)) as cluster:
        cluster.run()
    verdict = judge(read_run(path), laws)
    # Nothing waits for the words that are held when the run ends: their message may have been acked early, and is lost.
    assert {finding.kind for finding in verdict.findings} <= {"early", "lost"}
    assert verdict.counts["early"] >= len(LINES)


def test_the_sinks_are_the_bolts_nobody_reads_from() -> None:
    assert sinks_of(topology()) == ("sink",)


@pytest.mark.parametrize("sink", ["lines", "sinc"])
def test_a_sink_that_is_none_is_refused(tmp_path: Path, sink: str) -> None:
    with pytest.raises(UsageError, match=f"sink '{sink}' is no bolt of this topology; its bolts: split, keeps"):
        tap(topology(), Tapping(str(tmp_path), (sink,)))


class AcksFirst(Bolt):
    outputs = ("word",)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        self.collector.ack(tup)
        self.collector.emit((tup["text"],))


class EmitsLoose(AcksFirst):
    def execute(self, tup: Tuple) -> None:
        self.collector.emit((tup["text"],))
        self.collector.ack(tup)


@pytest.mark.parametrize(("bolt", "late"), [(AcksFirst(), len(LINES)), (EmitsLoose(), 0)])
def test_a_bolt_that_emits_after_its_ack_is_told_from_one_that_does_not_anchor(
    tmp_path: Path, bolt: Bolt, late: int
) -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", Lines())
    builder.set_bolt('odd"', bolt).shuffle_grouping("lines")
    builder.set_bolt("sink", Sink()).shuffle_grouping('odd"')
    seen = run(tmp_path, "run", of=builder.build())
    assert seen.after_ack.total() == late
    assert sum(map(Counter.total, seen.of_no_message.values())) == len(LINES)
    assert all(name == 'odd"' for _, name in seen.after_ack)
