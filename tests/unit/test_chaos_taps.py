"""Taps: components of rows and of batches see what they would see without, and the logs tell what happened."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from squall import (
    BasicBolt,
    BasicCollector,
    BatchBolt,
    BatchCollector,
    BatchSpout,
    Bolt,
    BoltCollector,
    ColumnBatch,
    Config,
    CustomGrouping,
    Failure,
    ReplayingSpout,
    SpoutCollector,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    UsageError,
)
from squall.chaos.checker import CheckedRun, Law, judge, learn, read_run
from squall.chaos.tapping import STEMS_FROM, Tapping
from squall.chaos.taps import from_state, sinks_of, tap
from squall.testing import SimulatedCluster, complete_topology

# Rows

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


def by_rows() -> Topology:
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


# Batches

ROWS = 60


class Numbers(BatchSpout):
    """In columns of several kinds; those that failed come again."""

    outputs = ("number", "square")

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.next = collector, 0
        self.again: list[int] = []
        self.unanswered: set[int] = set()

    def next_batch(self, rows: int) -> None:
        numbers, self.again = self.again[:rows], self.again[rows:]
        if not numbers:
            numbers = list(range(self.next, min(self.next + min(rows, 7), ROWS)))
            self.next += len(numbers)
        if numbers:
            self.unanswered.update(numbers)
            squares = array("q", [number * number for number in numbers])
            self.collector.emit_batch((numbers, squares), message_ids=numbers)

    def ack_batch(self, message_ids: list[int]) -> None:
        self.unanswered.difference_update(message_ids)

    def fail_batch(self, message_ids: list[int], failures: list[Failure]) -> None:
        self.again += message_ids

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return self.next == ROWS and not self.unanswered


class Divisors(BatchBolt):
    """Rows by counts, by parents, and one for each."""

    outputs = {"default": ("number", "divisor"), "odd": ("number",), "same": ("number", "square")}  # noqa: RUF012

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        if batch.is_tick:
            return
        assert batch.fields == ("number", "square")
        assert len(batch.columns) == 2
        divisors = [[d for d in (2, 3, 5) if number % d == 0] for number in batch["number"]]
        flat = [(number, d) for number, ds in zip(batch["number"], divisors, strict=True) for d in ds]
        collector.emit_batch([[n for n, _ in flat], [d for _, d in flat]], counts=list(map(len, divisors)))
        odd = [row for row, number in enumerate(batch["number"]) if number % 2]
        collector.emit_batch(([batch["number"][row] for row in odd],), parents=odd, stream="odd")
        collector.emit_batch(batch.columns, stream="same")


class BatchSink(BatchBolt):
    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        assert all(len(row) == len(batch.fields) for row in batch.to_rows())


class RowSink(BasicBolt):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        assert tup.fields == ("number",)


def by_batches() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("divisors", Divisors(), parallelism=2).shuffle_grouping("numbers").set_config(
        tick_tuple_freq_secs=1
    )
    ends = builder.set_bolt("ends", BatchSink(), parallelism=2).fields_grouping("divisors", "divisor")
    ends.shuffle_grouping("divisors", stream="same")
    builder.set_bolt("odd", RowSink()).shuffle_grouping("divisors", stream="odd")
    return builder.build()


# Both


def run(
    directory: Path, name: str, topology: Topology, workers: int = 1, fail_every: int = 0, kills: int = 0,
    **settings: Any,
) -> CheckedRun:
    """`kills`: of workers, each after some turns."""
    path = directory / name
    path.mkdir()
    tapped = tap(topology, Tapping(str(path), sinks_of(topology), fail_every=fail_every))
    with SimulatedCluster(tapped, Config(workers=workers, **settings)) as cluster:
        for number in range(kills):
            for _ in range(2 + number % 3):
                cluster.step()
            cluster.kill(number % workers)
            cluster.step()
            cluster.restart(number % workers)
        cluster.run()
    return read_run(path)


def learned(directory: Path, topology: Topology) -> list[Law]:
    return learn([
        run(directory, "first", topology), run(directory, "second", topology, workers=3, fail_every=4)
    ])  # fmt: skip


BOTH = pytest.mark.parametrize(
    ("topology", "count", "laws"),
    [
        (by_rows(), len(LINES), {
            "sink from split/lengths": "values", "sink from keeps/default": "values",
            "sink from joins/default": "presence",
        }),
        (by_batches(), ROWS, {
            "ends from divisors/default": "values", "ends from divisors/same": "values",
            "odd from divisors/odd": "values",
        }),
    ],
    ids=["rows", "batches"],
)  # fmt: skip


@BOTH
def test_components_emit_what_they_emit_without_taps(
    tmp_path: Path, topology: Topology, count: int, laws: dict[str, str]
) -> None:
    plain = complete_topology(topology)
    tapped = complete_topology(tap(topology, Tapping(str(tmp_path), ())))
    for stream in plain.keys() - {"joins"}:
        assert sorted(map(repr, plain[stream])) == sorted(repr(row[:-1]) for row in tapped[stream])
    joined = [sorted(word for row in emitted.get("joins", ()) for word in row[0]) for emitted in (plain, tapped)]
    assert joined[0] == joined[1]


@BOTH
def test_each_way_into_a_sink_has_a_law_of_its_own_that_deaths_do_not_break(
    tmp_path: Path, topology: Topology, count: int, laws: dict[str, str]
) -> None:
    found = learned(tmp_path, topology)
    assert {law.label: law.asks for law in found} == laws
    verdict = judge(run(tmp_path, "killed", topology, workers=3, kills=10), found)
    assert verdict.findings == []
    assert (verdict.messages, verdict.ok) == (count, count)
    assert verdict.recovered > 0


@BOTH
def test_a_message_that_is_told_to_have_failed_comes_again(
    tmp_path: Path, topology: Topology, count: int, laws: dict[str, str]
) -> None:
    again = run(tmp_path, "again", topology, fail_every=3)
    twice = [message for message in again.messages.values() if message.emits == 2]
    assert 0 < len(twice) < count
    assert all(message.fails == 1 and message.acked_ns is not None for message in twice)


def test_groupings_that_decide_the_task_are_held_to_it(tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", Lines())
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    sink = builder.set_bolt("sink", Sink(), parallelism=3).fields_grouping("split", "word")
    sink.all_grouping("split", stream="lengths").shuffle_grouping("lines")
    built = builder.build()
    laws = learn([run(tmp_path, "first", built), run(tmp_path, "second", built, workers=3, fail_every=4)])
    assert {law.label: (law.asks, law.placed) for law in laws} == {
        "sink from split/default": ("values", True),
        "sink from split/lengths": ("values", True),
        "sink from lines/default": ("values", False),
    }
    verdict = judge(run(tmp_path, "third", built, workers=2, fail_every=3), laws)
    assert verdict.good
    assert verdict.not_shown == []


def test_the_sinks_are_the_bolts_nobody_reads_from() -> None:
    assert sinks_of(by_rows()) == ("sink",)


@pytest.mark.parametrize("sink", ["lines", "sinc"])
def test_a_sink_that_is_none_is_refused(tmp_path: Path, sink: str) -> None:
    with pytest.raises(UsageError, match=f"sink '{sink}' is no bolt of this topology; its bolts: split, keeps"):
        tap(by_rows(), Tapping(str(tmp_path), (sink,)))


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
    seen = run(tmp_path, "run", builder.build())
    assert seen.after_ack.total() == late
    assert sum(map(Counter.total, seen.of_no_message.values())) == len(LINES)
    assert all(name == 'odd"' for _, name in seen.after_ack)


class OfOneTask(Lines):
    """Two tasks, of which one reads the source, as tasks do that claim files."""

    def __init__(self, reader: int) -> None:
        super().__init__()
        self.reader = reader

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.reads = context.task_index == self.reader
        super().open(conf, context, collector)

    def read(self) -> Iterator[tuple[Any, Any]]:
        return super().read() if self.reads else iter(())


class Totals(StatefulBolt):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.state["words"] = self.state.get("words", 0) + tup["words"]


def digests(directory: Path, reader: int) -> dict[str, Any]:
    """What is recorded of each message: the digest of its values, and those of what a sink got of it."""
    builder = TopologyBuilder()
    builder.set_spout("lines", OfOneTask(reader), parallelism=2)
    builder.set_bolt("split", Split()).shuffle_grouping("lines")
    builder.set_bolt("totals", Totals()).global_grouping("split", stream="lengths")
    found = run(directory, str(reader), builder.build())
    return {
        key: (message.digests, {label: message.digests_of(label, placed=False) for label in message.received})
        for key, message in found.messages.items()
    }


def test_a_message_before_state_has_the_same_values_whichever_task_reads_it(tmp_path: Path) -> None:
    first = digests(tmp_path, 0)
    assert len(first) == len(LINES)
    assert first == digests(tmp_path, 1)


class Passes(BasicBolt):
    outputs = ("word",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit(tup.values)


def test_what_state_emits_and_what_comes_behind_it_depends_on_an_order() -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", Lines())
    builder.set_bolt("split", Split()).shuffle_grouping("lines")
    builder.set_bolt("counts", type("Counts", (StatefulBolt,), {"outputs": ("word",)})()).global_grouping("split")
    builder.set_bolt("passes", Passes()).global_grouping("counts")
    builder.set_bolt("sink", Sink()).global_grouping("passes").global_grouping("split", stream="lengths")
    assert from_state(builder.build()) == {"passes from counts/default", "sink from passes/default"}
