"""ReplayingSpout: nothing that failed is forgotten, and it comes back later each time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from squall import ComponentError, Emit, ReplayingSpout
from squall.engine.api.replaying import Record
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.core.executor import TaskCrashed
from tests.unit.lab import Kept
from tests.unit.rig import STREAMS, Does


class Reads(ReplayingSpout):
    """Yields what the test put down, as often as it is asked."""

    outputs = STREAMS

    def __init__(self, *records: Record | None) -> None:
        self.records = list(records)
        self.failed: list[Any] = []
        self.started: list[str] = []

    def start(self, conf: Any, context: Any) -> None:
        self.started.append(context.component_id)

    def read(self) -> Iterator[Record | None]:
        while self.records:
            yield self.records.pop(0)

    def fail(self, message_id: Any) -> None:
        self.failed.append(message_id)


class Lab(Kept):
    def __init__(self, *records: Record | None, bolt: Does | None = None, **settings: Any) -> None:
        super().__init__(Reads(*records), bolt, **settings)
        self.spout: Reads = self.user("spout")
        self.settle()

    @property
    def finished(self) -> bool:
        self.settle()
        return self.spout_task.finished


def test_records_are_read_in_order_and_an_unfinished_one_keeps_the_spout_from_being_exhausted() -> None:
    lab = Lab((1, ("a",)), None, (2, ("b",)))
    assert lab.bolt.seen == [("a",), ("b",)]
    assert lab.spout.started == ["spout"]
    lab.ack("a")
    assert not lab.finished
    assert not lab.spout.exhausted
    lab.ack("b")
    assert lab.finished
    assert lab.spout.exhausted


def test_a_failed_record_comes_again_after_a_delay_that_doubles() -> None:
    lab = Lab((1, ("a",)))
    lab.spout.first_delay_secs = 1.0
    lab.spout.max_delay_secs = 5.0
    for attempt, most in enumerate((1.0, 2.0, 4.0, 5.0, 5.0), 1):
        assert len(lab.bolt.seen) == attempt
        lab.fail()
        lab.advance(most * 0.499)
        assert len(lab.bolt.seen) == attempt
        lab.advance(most * 0.502)
    assert lab.bolt.seen == [("a",)] * 6
    assert lab.spout.failed == [1] * 5
    lab.ack("a")
    assert lab.finished


@pytest.mark.parametrize("second", [1, None])
def test_a_record_that_could_not_be_kept_is_refused(second: Any) -> None:
    with pytest.raises(TaskCrashed, match=rf"ComponentError: Reads\.read yielded message id {second}"):
        Lab((1, ("a",)), (second, ("b",)))


@pytest.mark.parametrize("emit", [Emit((1, 2), "pair"), Emit((3,), "to", 2), Emit((4,)), (5,)])
def test_records_of_any_stream_come_again_where_they_went(emit: Any) -> None:
    lab = Lab(("id", emit))
    [first] = lab.bolt.kept
    lab.fail()
    lab.advance(1)
    [again] = lab.bolt.kept
    values, stream = (emit, DEFAULT_STREAM) if isinstance(emit, tuple) else (emit.values, emit.stream)
    assert again.values == first.values == values
    assert again.source_stream == first.source_stream == stream
    lab.end.ack(again)
    assert lab.finished


def test_a_subclass_sees_what_is_kept_and_may_emit_other_values_at_the_next_attempt() -> None:
    lab = Lab((1, ("a",)), (("x", 2), ("b",)))
    assert lab.spout.kept == {1: (1, ("a",)), ("x", 2): (("x", 2), ("b",))}
    assert lab.spout.at_end
    assert lab.spout.context.component_id == "spout"
    lab.spout.collector.emit(("untracked",))
    lab.spout.replace(1, ("c",))
    lab.fail(0)
    lab.advance(1)
    assert lab.bolt.seen == [("a",), ("b",), ("untracked",), ("c",)]
    assert lab.pending == 2
    lab.ack("c")
    with pytest.raises(ComponentError, match="Reads cannot replace the values of message 1; allowed: of one that is p"):
        lab.spout.replace(1, ("d",))
