"""complete_topology: what each component emitted when everything is processed, or an error that says what was not."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from squall import (
    BasicBolt,
    BasicCollector,
    Bolt,
    BoltCollector,
    ClusterError,
    Config,
    FailedTuple,
    ReplayingSpout,
    Spout,
    SpoutCollector,
    Stream,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    UsageError,
    run,
    spout,
)
from squall.engine.core.executor import TaskCrashed
from squall.testing import SimulatedCluster, TopologyFailed, complete_topology

LINES = {"lines": [("the cat",), ("the dog",)]}


class Endless(Spout):
    """What a source of the real world would be."""

    outputs: ClassVar = {"default": ("line",), "late": ("line", "secs"), "to": Stream("line", direct=True)}

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector

    def next_tuple(self) -> None:
        self.collector.emit(("again",))


class Split(BasicBolt):
    """Words of a line; "fail" and "raise" do so."""

    outputs: ClassVar = {"default": ("word",), "empty": ("line",), "to": Stream("word", direct=True)}

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.sinks = context.component_tasks("sink")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for word in tup["line"].split():
            if word == "fail":
                raise FailedTuple("not this word")
            if word == "raise":
                raise ValueError("not this word either")
            collector.emit((word,))
            if self.sinks:
                collector.emit_direct(self.sinks[-1], (word,), stream="to")


class Count(BasicBolt):
    outputs = ("word", "count")

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts = Counter[str]()

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.counts[tup["word"]] += 1
        collector.emit((tup["word"], self.counts[tup["word"]]))


class Plain(Bolt):
    """Forwards what it gets, anchored, and acks it, unless it forgets to."""

    outputs = ("word",)

    def __init__(self, forgets: str = "") -> None:
        self.forgets = forgets

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        self.collector.emit((tup["word"],), anchors=[tup, tup])
        if tup["word"] != self.forgets:
            self.collector.ack(tup)


def word_count(spout: Spout | None = None, plain: Plain | None = None) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("lines", spout or Endless(), parallelism=2)
    split = builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    if spout is None:
        split.shuffle_grouping("lines", stream="late")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", "word")
    builder.set_bolt("plain", plain or Plain()).direct_grouping("split", stream="to")
    return builder.build()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_tuple_of_every_component_is_returned(workers: int) -> None:
    emitted = complete_topology(word_count(), LINES, Config(workers=workers))
    assert emitted["lines"] == [("the cat",), ("the dog",)]
    assert Counter(emitted["split"]) == {("the",): 2, ("cat",): 1, ("dog",): 1}
    assert Counter(emitted["count"]) == Counter([("the", 1), ("the", 2), ("cat", 1), ("dog", 1)])
    # Every declared stream has an entry, also one that nobody emitted to or subscribes to.
    assert emitted["lines/late"] == emitted["split/empty"] == emitted["plain"] == []


def test_the_same_again_is_the_same_in_the_same_order() -> None:
    sources = {"lines": [(" ".join("abcdefgh"[: n % 8]),) for n in range(50)]}
    assert complete_topology(word_count(), sources) == complete_topology(word_count(), sources)


def test_tuples_on_other_and_on_direct_streams() -> None:
    class Sink(BasicBolt):
        outputs = ("word",)

        def execute(self, tup: Tuple, collector: BasicCollector) -> None:
            collector.emit(tup.values)

    builder = TopologyBuilder()
    builder.set_spout("lines", Endless())
    builder.set_bolt("split", Split()).shuffle_grouping("lines", stream="late").shuffle_grouping("lines")
    builder.set_bolt("count", Count()).shuffle_grouping("split")
    builder.set_bolt("sink", Sink(), parallelism=2).direct_grouping("split", stream="to")
    builder.set_bolt("plain", Plain()).shuffle_grouping("split")
    emitted = complete_topology(builder.build(), {"lines": [("a b",)], "lines/late": [["c", 5]]})
    assert emitted["lines/late"] == [("c", 5)]
    assert emitted["split/to"] == emitted["sink"] == emitted["plain"] == [("a",), ("b",), ("c",)]


class Finite(ReplayingSpout):
    outputs = ("line",)

    def read(self) -> Iterator[tuple[Any, Any]]:
        yield "one", ("a b",)
        yield "two", ("fail once",)


class FailsOnce(Split):
    """`FailedTuple` on the first attempt at a line."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().prepare(conf, context)
        self.mark = Path(context.state_dir) / "failed"

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if self.mark.exists():
            collector.emit((tup["line"],))
        elif tup["line"].startswith("fail"):
            self.mark.touch()
            raise FailedTuple("the first time")
        else:
            super().execute(tup, collector)


def test_a_spout_of_the_topology_may_replay() -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", Finite())
    builder.set_bolt("split", FailsOnce()).shuffle_grouping("lines")
    emitted = complete_topology(builder.build())
    assert emitted["lines"] == [("a b",), ("fail once",), ("fail once",)]
    assert emitted["split"] == [("a",), ("b",), ("fail once",)]


def test_a_message_that_fails_is_named_with_component_and_reason() -> None:
    named = r"message 1 of 'lines': failed in split\[\d\] .*: not this word"
    with pytest.raises(TopologyFailed, match=named) as caught:
        complete_topology(word_count(), {"lines": [("good",), ("fail",)]})
    ((spout, message_id, failure),) = caught.value.failures
    assert (spout, message_id, failure.reason, failure.component) == ("lines", 1, "failed", "split")


def test_many_failures_are_summed_up() -> None:
    with pytest.raises(TopologyFailed, match=r"message 0 .*; and 4 more$"):
        complete_topology(word_count(), {"lines": [("fail",)] * 9})


class GivesUp(Spout):
    outputs = ("line",)

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector

    def next_tuple(self) -> None:
        if not self.exhausted:
            self.exhausted = True
            self.collector.emit(("fail",), message_id="only")


@pytest.mark.parametrize("settings", [{}, {"max_attempts": 1}])
def test_a_message_that_its_spout_does_not_replay_has_failed(settings: dict[str, Any]) -> None:
    with pytest.raises(TopologyFailed, match="message 'only' of 'lines': failed"):
        complete_topology(word_count(GivesUp()), config=Config(**settings))


class FailsAtFirst(Bolt):
    """Fails the first tuple, and acks the others at the next tick."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.tuples: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        if not tup.is_tick:
            self.tuples.append(tup)
            if len(self.tuples) == 1:
                self.collector.fail(tup)
        else:
            while len(self.tuples) > 1:
                self.collector.ack(self.tuples.pop())


def test_an_ack_of_another_task_under_the_same_message_id_hides_no_failure() -> None:
    builder = TopologyBuilder(Config(max_attempts=1))
    builder.set_spout("numbers", spout("n")(lambda: [7]), parallelism=2)
    fails = builder.set_bolt("fails", FailsAtFirst()).shuffle_grouping("numbers")
    fails.set_config(tick_tuple_freq_secs=1)
    with pytest.raises(TopologyFailed, match=r"message 0 of 'numbers': failed in fails\["):
        complete_topology(builder.build())


def test_an_exception_is_raised_as_it_is() -> None:
    with pytest.raises(TaskCrashed, match=r"split\[\d\] raised ValueError: not this word either in execute") as caught:
        complete_topology(word_count(), {"lines": [("raise",)]})
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(TopologyFailed, match=r"exception in split.*ValueError: not this word either"):
        complete_topology(word_count(), {"lines": [("raise",)]}, Config(on_error="fail"))


def test_who_keeps_a_tuple_is_named_when_it_times_out() -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", Endless())
    builder.set_bolt("split", Split()).shuffle_grouping("lines")
    builder.set_bolt("plain", Plain(forgets="b")).shuffle_grouping("split")
    with pytest.raises(TopologyFailed, match=r"'lines': timeout .*neither acked nor failed: 'plain' has \d+ tuples"):
        complete_topology(builder.build(), {"lines": [("a b c",)]})


def test_a_spout_that_never_ends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall.testing.simulated.MAX_BUSY_TURNS", 20)
    with pytest.raises(ClusterError, match=r"still busy after .*; spouts not exhausted: 'lines'"):
        complete_topology(word_count())


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        ({"line": []}, "'line' is no spout of this topology; its spouts are 'lines'"),
        ({"split": []}, "'split' is no spout of this topology; its spouts are 'lines'"),
        ({"lines/early": [("x",)]}, "emitted to undeclared stream 'early'"),
        ({"lines/to": [("x",)]}, "stream 'to' is a direct stream"),
        ({"lines": [("a",), ("b", 2)]}, r"lines.* raised .*2 values"),
        ({"lines": ["a"]}, r"lines.* raised .*'a'"),
    ],
)
def test_a_source_that_does_not_fit_is_refused(sources: dict[str, Any], text: str) -> None:
    with pytest.raises((UsageError, TaskCrashed), match=text):
        complete_topology(word_count(), sources)


class Locks(BasicBolt):
    outputs = ("lock",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((threading.Lock(),))


def test_what_cannot_be_sent_is_refused_as_on_a_real_cluster() -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", Endless())
    builder.set_bolt("locks", Locks()).shuffle_grouping("lines")
    builder.set_bolt("all", Locks(), parallelism=2).all_grouping("locks")
    with pytest.raises(TaskCrashed, match=r"locks.* field 'lock': a value of type _thread.lock cannot be pickled"):
        complete_topology(builder.build(), {"lines": [("x",)]}, Config(workers=2))


@pytest.mark.parametrize("entry", [complete_topology, SimulatedCluster, run])
def test_what_is_no_topology_is_refused(entry: Callable[..., object]) -> None:
    with pytest.raises(UsageError, match=r"needs the Topology that TopologyBuilder.build\(\) returns, not 'topology'$"):
        entry("topology")
