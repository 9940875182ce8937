"""Anchoring, acking and failing through the collectors, with Storm's integration tests of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from squall.engine.api.tuple import UNTRACKED, Tuple
from squall.engine.errors import ComponentError
from tests.unit.rig import STREAMS, Does, Feeder, Rig, aggregates, chain, emits, keeps, streams_rig


def refused(middle: Callable[[Does, Tuple, Callable[..., None]], None]) -> Feeder:
    """Feeds one tuple to a bolt that makes mistakes by its third argument; its spout, when all is done."""

    def execute(bolt: Does, tup: Tuple) -> None:
        def mistake(named: str, anchors: Any, how: str) -> None:
            collector = bolt.collector
            sink = bolt.context.component_tasks("sink")[0]
            attempts: dict[str, Callable[[], Any]] = {
                "ack": lambda: collector.ack(tup),
                "fail": lambda: collector.fail(tup),
                "emit": lambda: collector.emit(("y",), anchors=anchors),
                "emit_direct": lambda: collector.emit_direct(sink, ("y",), anchors=anchors, stream="to"),
            }
            with pytest.raises(ComponentError, match=named):
                attempts[how]()
            made.append(how)

        middle(bolt, tup, mistake)

    made: list[str] = []
    spout = Feeder()
    rig = streams_rig(spout, Does(execute, STREAMS))
    spout.feed("x", id=1)
    rig.settle()
    assert made
    assert rig.user("sink").seen == []
    return spout


@pytest.mark.parametrize("end", ["ack", "fail"])
def test_nothing_can_be_done_with_a_tuple_that_is_done(end: str) -> None:
    def middle(bolt: Does, tup: Tuple, mistake: Callable[..., None]) -> None:
        getattr(bolt.collector, end)(tup)
        for how in ("ack", "fail", "emit", "emit_direct"):
            for anchors in (tup, [tup]):
                mistake(r"bolt-1\[.*<Tuple from spout:.* value='x'>.*acked or failed before", anchors, how)

    spout = refused(middle)
    assert (spout.acked, spout.reasons) == (([1], []) if end == "ack" else ([], [(1, "failed")]))


def test_what_is_no_tuple_is_no_anchor() -> None:
    def middle(bolt: Does, tup: Tuple, mistake: Callable[..., None]) -> None:
        for anchors in (5, ["x"], [None], "x", object()):
            for how in ("emit", "emit_direct"):
                mistake("as an anchor; allowed: an input tuple, or several", anchors, how)
        bolt.collector.ack(tup)

    assert refused(middle).acked == [1]


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


# Trees of several branches: Storm's tests of them are in tests/storm_acking.py.


@pytest.mark.parametrize("end", ["ack", "fail"])
def test_what_is_anchored_to_two_trees_ends_both(end: str) -> None:
    spout = Feeder()
    last = Does(lambda bolt, tup: getattr(bolt.collector, end)(tup))
    rig = Rig(chain(spout, Does(aggregates(2), ("count",)), Does(emits(1), ("count",)), last))
    spout.feed("x", id=1)
    spout.feed("y", id=2)
    rig.settle()
    assert (sorted(spout.acked), sorted(message_id for message_id, _ in spout.failures)) == (
        ([1, 2], []) if end == "ack" else ([], [1, 2])
    )
    assert all((failure.reason, failure.component) == ("failed", "bolt-3") for _, failure in spout.failures)
    assert (rig.pending, rig.tracked) == (0, 0)
