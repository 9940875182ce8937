"""Anchoring, acking and failing through the collectors, with Storm's integration tests of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from squall.engine.api.tuple import UNTRACKED, Tuple
from squall.engine.errors import ComponentError
from tests.unit.rig import STREAMS, Does, Feeder, Rig, acks, aggregates, chain, emits, keeps, streams_rig


@pytest.mark.parametrize("first", ["ack", "fail"])
@pytest.mark.parametrize("second", ["ack", "fail", "emit", "emit several", "emit_direct"])
def test_nothing_can_be_done_with_a_tuple_that_is_done(first: str, second: str) -> None:
    errors = []

    def execute(bolt: Does, tup: Tuple) -> None:
        collector = bolt.collector
        getattr(collector, first)(tup)
        sink = bolt.context.component_tasks("sink")[0]
        named = r"bolt-1\[.*<Tuple from spout:.* value='x'>.*acked or failed before"
        attempts: dict[str, Callable[[], Any]] = {
            "ack": lambda: collector.ack(tup),
            "fail": lambda: collector.fail(tup),
            "emit": lambda: collector.emit(("y",), anchors=tup),
            "emit several": lambda: collector.emit(("y",), anchors=[tup]),
            "emit_direct": lambda: collector.emit_direct(sink, ("y",), anchors=tup, stream="to"),
        }
        with pytest.raises(ComponentError, match=named) as refused:
            attempts[second]()
        errors.append(refused)

    spout = Feeder()
    rig = streams_rig(spout, Does(execute, STREAMS))
    spout.feed("x", id=1)
    rig.settle()
    assert len(errors) == 1
    assert (spout.acked, spout.reasons) == (([1], []) if first == "ack" else ([], [(1, "failed")]))
    assert rig.user("sink").seen == []


@pytest.mark.parametrize("anchors", [5, ["x"], [None], "x", object()])
def test_what_is_no_tuple_is_no_anchor(anchors: Any) -> None:
    refused = []

    def execute(bolt: Does, tup: Tuple) -> None:
        sink = bolt.context.component_tasks("sink")[0]
        emits: list[Callable[[], Any]] = [
            lambda: bolt.collector.emit(("y",), anchors=anchors),
            lambda: bolt.collector.emit_direct(sink, ("y",), anchors=anchors, stream="to"),
        ]
        for emit in emits:
            with pytest.raises(ComponentError, match="as an anchor; allowed: an input tuple, or several"):
                emit()
            refused.append(anchors)
        bolt.collector.ack(tup)

    spout = Feeder()
    rig = streams_rig(spout, Does(execute, STREAMS))
    spout.feed("x", id=1)
    rig.settle()
    assert len(refused) == 2


@pytest.mark.parametrize("anchors", [(), [], None])
def test_without_anchors_nothing_is_tracked(anchors: Any) -> None:
    def execute(bolt: Does, tup: Tuple) -> None:
        sink = bolt.context.component_tasks("sink")[0]
        bolt.collector.emit(("y",), anchors=anchors)
        bolt.collector.emit_direct(sink, ("y",), anchors=anchors, stream="to")
        bolt.collector.ack(tup)

    spout = Feeder()
    builder = chain(spout, Does(execute, STREAMS))
    builder.set_bolt("sink", Does(keeps)).shuffle_grouping("bolt-1").direct_grouping("bolt-1", stream="to")
    rig = Rig(builder)
    spout.feed("x", id=1)
    rig.settle()
    assert spout.acked == [1]
    sink = rig.user("sink")
    assert len(sink.kept) == 2
    for tup in sink.kept:  # untracked tuples may be acked and failed as any other
        sink.collector.fail(tup)
    rig.settle()
    assert spout.failures == []
    assert (UNTRACKED.children, UNTRACKED.mask, UNTRACKED.failed, UNTRACKED.others) == (0, 0, False, ())


# ---- trees of several branches; Storm's tests of them are in tests/storm_acking.py ----


@pytest.mark.parametrize("which", [0, 1])
def test_failing_what_is_anchored_to_two_trees_fails_both(which: int) -> None:
    def fails(bolt: Does, tup: Tuple) -> None:
        bolt.collector.fail(tup)

    spout = Feeder()
    last = Does((fails, acks)[which])
    rig = Rig(chain(spout, Does(aggregates(2), ("count",)), Does(emits(1), ("count",)), last))
    spout.feed("x", id=1)
    spout.feed("y", id=2)
    rig.settle()
    if which == 0:
        assert sorted(spout.reasons) == [(1, "failed"), (2, "failed")]
        assert spout.failures[0][1].component == "bolt-3"
    else:
        assert sorted(spout.acked) == [1, 2]
    assert (rig.pending, rig.tracked) == (0, 0)
