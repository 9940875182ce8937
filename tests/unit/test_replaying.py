"""ReplayingSpout: nothing that failed is forgotten, and it comes back later each time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from squall.engine.api.replaying import Record, ReplayingSpout
from squall.engine.api.stream import DEFAULT_STREAM, Emit
from squall.engine.build.builder import TopologyBuilder
from squall.engine.core.executor import TaskCrashed
from squall.engine.errors import ComponentError
from tests.unit.rig import STREAMS, Does, Rig, acks, chain, keeps


class Reads(ReplayingSpout):
    """Yields what the test put down, as often as it is asked."""

    outputs = ("value",)

    def __init__(self, *records: Record | None, endless: bool = False) -> None:
        self.records: list[Record | None] = list(records)
        self.endless = endless
        self.failed: list[Any] = []
        self.started: list[str] = []

    def start(self, conf: Any, context: Any) -> None:
        self.started.append(context.component_id)

    def read(self) -> Iterator[Record | None]:
        while self.records or self.endless:
            yield self.records.pop(0) if self.records else None

    def fail(self, message_id: Any) -> None:
        self.failed.append(message_id)


class Lab(Rig):
    """With its spout and bolt at hand."""

    def __init__(self, spout: Reads, bolt: Does, **settings: Any) -> None:
        super().__init__(chain(spout, bolt), **settings)
        self.spout: Reads = self.user("spout")
        self.bolt = bolt

    def fail(self, index: int = -1) -> None:
        self.user("bolt-1").collector.fail(self.bolt.kept[index])
        self.settle()

    @property
    def finished(self) -> bool:
        self.settle()
        return all(task.finished for _, task in self.core.spout_tasks.values())


def test_records_are_read_in_order_and_the_end_is_noticed() -> None:
    bolt = Does(acks)
    lab = Lab(Reads((1, ("a",)), None, (2, ("b",))), bolt)
    assert not lab.spout.exhausted
    assert lab.finished
    assert bolt.seen == [("a",), ("b",)]
    assert lab.spout.started == ["spout"]
    assert lab.spout.exhausted


def test_an_unfinished_record_keeps_the_spout_from_being_exhausted() -> None:
    lab = Lab(Reads((1, ("a",))), Does(keeps))
    assert not lab.finished
    assert not lab.spout.exhausted
    lab.user("bolt-1").collector.ack(lab.bolt.kept[0])
    assert lab.finished


def test_a_failed_record_comes_again_after_a_delay_that_doubles() -> None:
    lab = Lab(Reads((1, ("a",))), Does(keeps))
    lab.spout.first_delay_secs = 1.0
    lab.spout.max_delay_secs = 5.0
    lab.settle()
    for attempt, most in enumerate((1.0, 2.0, 4.0, 5.0, 5.0), 1):
        assert len(lab.bolt.kept) == attempt
        lab.fail()
        lab.advance(most * 0.499)
        assert len(lab.bolt.kept) == attempt
        lab.advance(most * 0.502)
    assert lab.bolt.seen == [("a",)] * 6
    assert lab.spout.failed == [1] * 5
    lab.user("bolt-1").collector.ack(lab.bolt.kept[-1])
    assert lab.finished


def test_a_dead_record_is_let_go() -> None:
    lab = Lab(Reads((1, ("a",))), Does(lambda bolt, tup: bolt.collector.fail(tup)), max_attempts=2)
    lab.settle()
    lab.advance(1)
    assert lab.bolt.seen == [("a",)] * 2
    assert [message_id for _, _, message_id, _, _ in lab.dead_letters] == [1]
    assert lab.finished


@pytest.mark.parametrize("second", [1, None])
def test_a_record_that_could_not_be_kept_is_refused(second: Any) -> None:
    lab = Lab(Reads((1, ("a",)), (second, ("b",))), Does(keeps))
    with pytest.raises(TaskCrashed, match=rf"ComponentError: Reads\.read yielded message id {second}"):
        lab.settle()


def streams_lab(*records: Record) -> Rig:
    spout = Reads(*records)
    spout.outputs = STREAMS
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    sinks = builder.set_bolt("bolt-1", Does(keeps)).shuffle_grouping("spout")
    sinks.shuffle_grouping("spout", stream="pair").direct_grouping("spout", stream="to")
    return Rig(builder)


@pytest.mark.parametrize("emit", [Emit((1, 2), "pair"), Emit((3,), "to", 2), Emit((4,)), (5,)])
def test_records_of_any_stream_come_again_where_they_went(emit: Any) -> None:
    lab = streams_lab(("id", emit))
    lab.settle()
    lab.user("bolt-1").collector.fail(lab.user("bolt-1").kept[0])
    lab.settle()
    lab.advance(1)
    first, again = lab.user("bolt-1").kept
    assert again.values == first.values == (emit if isinstance(emit, tuple) else emit.values)
    assert again.source_stream == first.source_stream == (DEFAULT_STREAM if isinstance(emit, tuple) else emit.stream)
    lab.user("bolt-1").collector.ack(again)
    lab.settle()
    assert lab.user("spout").exhausted


def test_other_values_may_be_emitted_at_the_next_attempt() -> None:
    lab = Lab(Reads((1, ("a",))), Does(keeps))
    lab.settle()
    lab.spout.replace(1, ("b",))
    lab.fail()
    lab.advance(1)
    assert lab.bolt.seen == [("a",), ("b",)]
    lab.user("bolt-1").collector.ack(lab.bolt.kept[-1])
    lab.settle()
    with pytest.raises(ComponentError, match="Reads cannot replace the values of message 1; allowed: of one that is p"):
        lab.spout.replace(1, ("c",))


def test_a_subclass_sees_what_is_kept_and_may_emit_untracked() -> None:
    lab = Lab(Reads((1, ("a",)), (("x", 2), ("b",))), Does(keeps))
    lab.settle()
    assert lab.spout.kept == {1: (1, ("a",)), ("x", 2): (("x", 2), ("b",))}
    assert lab.spout.at_end
    assert lab.spout.context.component_id == "spout"
    lab.spout.collector.emit(("c",))
    lab.settle()
    assert lab.bolt.seen == [("a",), ("b",), ("c",)]
    assert lab.pending == 2
