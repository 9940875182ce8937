"""Taps: components of rows and of batches see what they would see without, and the logs tell what happened."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from squall import (
    BatchBolt,
    BatchCollector,
    BatchSpout,
    ColumnBatch,
    Config,
    CustomGrouping,
    Spout,
    StatefulBolt,
    Topology,
    Tuple,
    UsageError,
    bolt,
    spout,
)
from squall.chaos.checker import CheckedRun, judge, learn, read_run
from squall.chaos.tapping import STEMS_FROM, Tapping, let_go
from squall.chaos.taps import from_state, sinks_of, tap
from squall.testing import SimulatedCluster, complete_topology
from tests.process.state_parts import Again, Split, text_of
from tests.unit.batch_rig import DoesBatch
from tests.unit.rig import Does, DoesBasic
from tests.unit.wired import wired

TEXTS = ["a b c", "b", "", "c c", "d e f g"] * 8
lines = spout("text")(lambda: TEXTS)


@bolt
def sink(tup: Tuple) -> None:
    assert STEMS_FROM not in tup
    dict(zip(tup.fields, tup.values, strict=True))


def keeps(bolt: DoesBasic, tup: Tuple, collector: Any) -> None:
    """Keeps every tuple: each must stay what it was."""
    bolt.kept.append(tup)
    assert all(len(one.values) == 1 for one in bolt.kept)
    collector.emit(tup.values)


def joins(bolt: Does, tup: Tuple) -> None:
    """Three tuples become one; the rest at a tick."""
    if tup.is_tick:
        assert tup.fields == ("rate_secs",)
        bolt.collector.ack(tup)
    else:
        bolt.kept.append(tup)
    if len(bolt.kept) >= 3 or tup.is_tick:
        bolt.collector.emit((sorted(one["word"] for one in bolt.kept),), anchors=iter(bolt.kept))
        for one in bolt.kept:
            bolt.collector.ack(one)
        bolt.kept = []


class First(CustomGrouping):
    def prepare(self, context: Any, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        self.target = list(target_tasks[:1])

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> list[int]:
        assert len(values) == 1
        return self.target


def by_rows() -> Topology:
    builder = wired(
        lines=(lines, 1), split=(Split(), 2, "shuffle lines"),
        keeps=(DoesBasic(keeps, ("word",)), 2, "fields split word"),
        sink=(sink, 2, "shuffle joins", "shuffle split/other", "all keeps"),
    )
    joined = builder.set_bolt("joins", Does(joins, ("words",)), 2).custom_grouping("keeps", First())
    joined.set_config(tick_tuple_freq_secs=1)
    return builder.build()


class Batches(BatchSpout):
    """Those that failed come again."""

    outputs: Any = ("text",)
    rows: Sequence[Any] = [text_of(number) for number in range(60)]

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.collector, self.left = collector, list(range(len(self.rows)))

    def next_batch(self, rows: int) -> None:
        if numbers := self.left[: min(rows, 7)]:
            del self.left[: len(numbers)]
            self.collector.emit_batch(([self.rows[number] for number in numbers],), message_ids=iter(numbers))

    def fail_batch(self, message_ids: list[int], failures: Any) -> None:
        self.left += message_ids

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return not self.left


class SplitColumns(BatchBolt):
    """Rows by counts, by parents, and one for each."""

    outputs: ClassVar = {"default": ("word",), "long": ("size",), "same": ("text",)}

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        if batch.is_tick:
            return
        assert (batch.fields, len(batch.columns)) == (("text",), 1)
        words = [sorted(set(text.split())) for text in batch["text"]]
        collector.emit_batch([[word for row in words for word in row]], counts=list(map(len, words)))
        long = [row for row, found in enumerate(words) if len(found) > 5]
        collector.emit_batch((array("q", [len(words[row]) for row in long]),), parents=long, stream="long")
        collector.emit_batch(batch.columns, stream="same")


def takes_rows(bolt: DoesBatch, batch: ColumnBatch, collector: BatchCollector) -> None:
    assert all(len(row) == len(batch.fields) == 1 for row in batch.to_rows())


def by_batches() -> Topology:
    builder = wired(
        texts=(Batches(), 1), ends=(DoesBatch(takes_rows), 2, "fields split word", "shuffle split/same"),
        sink=(sink, 1, "shuffle split/long"),
    )
    split = builder.set_bolt("split", SplitColumns(), parallelism=2).shuffle_grouping("texts")
    split.set_config(tick_tuple_freq_secs=1)
    return builder.build()


def run(
    directory: Path, topology: Topology, workers: int = 1, kills: int = 0, **tapping: int
) -> CheckedRun:
    """`kills`: of workers, each after some turns."""
    path = directory / f"run {len(list(directory.iterdir()))}"
    path.mkdir()
    tapped = tap(topology, Tapping(str(path), sinks_of(topology), **tapping))
    with SimulatedCluster(tapped, Config(workers=workers)) as cluster:
        for number in range(kills):
            for _ in range(2 + number % 3):
                cluster.step()
            cluster.kill(number % workers)
            cluster.step()
            cluster.restart(number % workers)
        cluster.run()
    return read_run(path)


BOTH = pytest.mark.parametrize("topology", [by_rows(), by_batches()], ids=["rows", "batches"])


@BOTH
def test_components_emit_what_they_emit_without_taps(tmp_path: Path, topology: Topology) -> None:
    plain = complete_topology(topology)
    tapped = complete_topology(tap(topology, Tapping(str(tmp_path), ())))
    for stream in plain.keys() - {"joins"}:
        assert sorted(map(repr, plain[stream])) == sorted(repr(row[:-1]) for row in tapped[stream])
    joined = [sorted(word for row in emitted.get("joins", ()) for word in row[0]) for emitted in (plain, tapped)]
    assert joined[0] == joined[1]


@BOTH
def test_each_way_into_a_sink_has_a_law_of_its_own_that_deaths_do_not_break(
    tmp_path: Path, topology: Topology
) -> None:
    found = learn([run(tmp_path, topology), run(tmp_path, topology, workers=3, fail_every=4)])
    assert {law.label: law.compares for law in found} in [{
        "sink from split/other": "values", "sink from keeps/default": "values", "sink from joins/default": "nothing",
    }, {"ends from split/default": "values", "ends from split/same": "values", "sink from split/long": "values"}]
    verdict = judge(run(tmp_path, topology, workers=3, kills=10), found)
    assert verdict.findings == []
    assert verdict.messages == verdict.ok == len(complete_topology(topology)[topology.spouts[0].id])
    assert verdict.recovered > 0


@BOTH
def test_what_is_lost_on_purpose_comes_again(tmp_path: Path, topology: Topology) -> None:
    again = run(tmp_path, topology, refuse_every=3).messages.values()
    assert 0 < sum(message.emits > 1 for message in again) < len(again)


@BOTH
def test_a_message_that_is_told_to_have_failed_comes_again(tmp_path: Path, topology: Topology) -> None:
    again = run(tmp_path, topology, fail_every=3).messages.values()
    twice = [message for message in again if message.emits == 2]
    assert 0 < len(twice) < len(again)
    assert all(message.fails == 1 and message.acked_ns is not None for message in twice)


def test_nothing_is_lost_on_purpose_once_spouts_are_let_go(tmp_path: Path) -> None:
    tapping = Tapping(str(tmp_path), ("sink",), refuse_every=2)
    let_go(tapping)
    complete_topology(tap(by_rows(), tapping))
    assert not any(message.fails for message in read_run(tmp_path).messages.values())


@pytest.mark.parametrize("name", ["lines", "sinc"])
def test_a_sink_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"sink '{name}' is no bolt of this topology; its bolts: split, keeps"):
        tap(by_rows(), Tapping(str(tmp_path), (name,)))


def acks_first(bolt: Does, tup: Tuple) -> None:
    bolt.collector.ack(tup)
    bolt.collector.emit((tup["text"],))


def emits_loose(bolt: Does, tup: Tuple) -> None:
    bolt.collector.emit((tup["text"],))
    bolt.collector.ack(tup)


@pytest.mark.parametrize("execute", [acks_first, emits_loose])
def test_a_bolt_that_does_not_anchor_is_noticed(tmp_path: Path, execute: Any) -> None:
    odd = {'odd"': (Does(execute, ("word",)), 1, "shuffle lines")}
    seen = run(tmp_path, wired(lines=(lines, 1), **odd, sink=(sink, 1, 'shuffle odd"')).build())
    assert seen.unanchored == {'sink from odd"/default': len(TEXTS)}


def emits_at_ticks(bolt: Does, tup: Tuple) -> None:
    bolt.kept.append(tup)
    if tup.is_tick:
        bolt.collector.emit((len(bolt.kept),))
        for one in bolt.kept:
            bolt.collector.ack(one)
        bolt.kept = []


class Untracked(Spout):
    outputs = ("text",)
    exhausted = False

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.collector = collector

    def next_tuple(self) -> None:
        if not self.exhausted:
            self.collector.emit(("a",))
        self.exhausted = True


def test_what_stems_from_ticks_or_has_no_id_needs_no_anchor(tmp_path: Path) -> None:
    builder = wired(
        lines=(lines, 1), untracked=(Untracked(), 1), passes=(Does(emits_loose, ("text",)), 2, "all counts"),
        sink=(sink, 1, "shuffle passes", "shuffle untracked"),
    )
    counts = builder.set_bolt("counts", Does(emits_at_ticks, ("text",))).shuffle_grouping("lines")
    counts.set_config(tick_tuple_freq_secs=1)
    seen = run(tmp_path, builder.build(), workers=2)
    assert seen.without_id["sink from passes/default"] > seen.without_id["sink from untracked/default"] == 1
    assert not seen.unanchored


class Places(StatefulBolt):
    def execute(self, tup: Tuple, collector: Any) -> None:
        self.state["sum"] = self.state.get("sum", 0) + tup["place"]


def of_one_task(reader: int) -> Spout:
    """Two tasks, of which one reads the source, as tasks do that claim files."""
    return spout("text")(lambda context: TEXTS if context.task_index == reader else ())


def digests(directory: Path, reader: int) -> dict[str, Any]:
    """The digests of what a sink got of each message."""
    topology = wired(
        lines=(of_one_task(reader), 2), split=(Split(), 1, "shuffle lines"), places=(Places(), 1, "global split/other"),
    ).build()
    return {
        key: {label: message.digests_of(label) for label in message.received}
        for key, message in run(directory, topology).messages.items()
    }


def test_a_message_before_state_has_the_same_values_whichever_task_reads_it(tmp_path: Path) -> None:
    first = digests(tmp_path, 0)
    assert len(first) == len(TEXTS)
    assert first == digests(tmp_path, 1)


def test_what_state_emits_and_what_comes_behind_it_depends_on_an_order() -> None:
    counts = type("Counts", (StatefulBolt,), {"outputs": ("word",)})()
    built = wired(
        lines=(lines, 1), split=(Split(), 1, "shuffle lines"), counts=(counts, 1, "global split"),
        passes=(Again(), 1, "global counts"), sink=(sink, 1, "global passes", "global split/other"),
    ).build()
    assert from_state(built) == {"passes from counts/default", "sink from passes/default"}
