"""Emitting, anchoring, acking and failing through the collectors: what is refused, and where the rest goes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from squall import BasicCollector, ComponentError, TopologyBuilder, Tuple
from squall.engine.api.tuple import UNTRACKED
from tests.unit.rig import STREAMS, Does, DoesBasic, Feeder, Rig, acks, aggregates, chain, emits, keeps, streams_rig

WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda emit: emit(("x",), stream="nope"), r"undeclared stream 'nope'; declared: 'default', 'pair', 'to'"),
    (lambda emit: emit(("x", "y")), r"stream 'default' emitted 2 values \('x', 'y'\), but its fields are \(value\)"),
    (lambda emit: emit(()), "emitted 0 values"),
    (lambda emit: emit(("x",), stream="pair"), r"stream 'pair' emitted 1 value .*\(a, b\)"),
    (lambda emit: emit("x"), r"must emit a tuple or list of values for \(value\), not 'x'"),
    (lambda emit: emit(5), "not 5"),
    (lambda emit: emit(None), "not None"),
    (lambda emit: emit({"value": 1}), "must emit a tuple or list"),
    (lambda emit: emit(("x",), stream="to"), r"stream 'to' is a direct stream; use emit_direct"),
]
WRONG_DIRECT: list[tuple[Callable[[Any, list[int]], Any], str]] = [
    (lambda direct, tasks: direct(tasks[0], ("x",)), "stream 'default' is not a direct stream"),
    (lambda direct, tasks: direct(tasks[0], ("x",), stream="nope"), "undeclared stream 'nope'"),
    (lambda direct, tasks: direct(tasks[0], ("x", "y"), stream="to"), "2 values"),
    (lambda direct, tasks: direct(999, ("x",), stream="to"), r"to task 999; allowed: its subscribers' tasks"),
]


@pytest.mark.parametrize("anchors", ["basic", "none", "one", "several"])
@pytest.mark.parametrize(
    ("wrong", "named", "subscribed"),
    [(*case, subscribed) for case in WRONG for subscribed in (True, False)] + [(*case, True) for case in WRONG_DIRECT],
)
def test_wrong_emits_of_a_bolt(wrong: Any, named: str, anchors: str, subscribed: bool) -> None:
    errors: list[str] = []

    def execute(bolt: Any, tup: Tuple, *basic: BasicCollector) -> None:
        collector, given = basic[0] if basic else bolt.collector, {}
        if not basic:
            given["anchors"] = {"none": (), "one": tup, "several": [tup, tup]}[anchors]
        how = [bolt.context.component_tasks("sink")] if (wrong, named) in WRONG_DIRECT else []
        emit = collector.emit_direct if how else collector.emit
        with pytest.raises(ComponentError, match=named) as refused:
            wrong(partial(emit, **given), *how)
        errors.append(str(refused.value))
        if not basic:
            collector.ack(tup)

    spout = Feeder()
    rig = streams_rig(spout, (DoesBasic if anchors == "basic" else Does)(execute, STREAMS), subscribed)
    spout.feed("x", id=1)
    rig.settle()
    assert len(errors) == 1
    assert "bolt-1[" in errors[0]
    # What was refused is no part of the tree.
    assert spout.acked == [1]
    assert rig.tracked == 0


@pytest.mark.parametrize(
    ("who", "wrong", "named"),
    [
        ("bolt", lambda it, tup: it.emit((1,), "to"), "bolt-1[2] called emit(values, 'to'); arguments"),
        ("bolt", lambda it, tup: it.emit((1,), "new", anchors=tup), "their names: write stream='new'"),
        ("bolt", lambda it, tup: it.emit((1,), tup), "write anchors=..."),
        ("bolt", lambda it, tup: it.emit_direct(7, (1,), tup, "to"), "write anchors=..., stream='to'"),
        ("bolt", lambda it, tup: it.emit((1,), anchor=tup), "BoltCollector.emit() got an unexpected keyword argument"),
        ("spout", lambda it, _: it.emit((1,), 5), "write message_id=5"),
        ("spout", lambda it, _: it.emit((1,), "id"), "write message_id='id'"),
        ("spout", lambda it, _: it.emit((1,), "pair"), "write stream='pair'"),
        ("spout", lambda it, _: it.emit((1,), "new", message_id=5), "write stream='new'"),
        ("spout", lambda it, _: it.emit_batch(([1],), [5]), "write message_ids=..."),
        ("spout", lambda it, _: it.give_up((1,), 5, "why", "to"), "write stream='to'"),
    ],
)
def test_what_follows_the_values_has_a_name(who: str, wrong: Any, named: str) -> None:
    spout, middle = Feeder(STREAMS), Does(keeps, STREAMS)
    rig = streams_rig(spout, middle)
    spout.feed("x", id=1)
    rig.settle()
    bolt = rig.user("bolt-1")
    collector = bolt.collector if who == "bolt" else rig.user("spout").collector
    with pytest.raises((ComponentError, TypeError), match=re.escape(named)):
        wrong(collector, bolt.kept[0])


@pytest.mark.parametrize("message_id", [None, 7])
@pytest.mark.parametrize(("wrong", "named"), WRONG)
def test_wrong_emits_of_a_spout(wrong: Any, named: str, message_id: Any) -> None:
    spout = Feeder(STREAMS)
    rig = Rig(chain(spout, Does(acks)))
    emit = partial(rig.user("spout").collector.emit, message_id=message_id)
    with pytest.raises(ComponentError, match=named):
        wrong(emit)
    assert (rig.pending, rig.tracked) == (0, 0)


def test_emit_returns_the_tasks() -> None:
    spout = Feeder(STREAMS)
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    builder.set_bolt("all", Does(acks), 3).all_grouping("spout").direct_grouping("spout", stream="to")
    builder.set_bolt("first", Does(acks), 2).global_grouping("spout")
    rig = Rig(builder)
    emitter = rig.user("spout").collector
    every, (first, _) = rig.plan.tasks_of("all"), rig.plan.tasks_of("first")
    for message_id in (None, 1):
        assert sorted(emitter.emit(("x",), message_id=message_id)) == sorted([*every, first])
        assert emitter.emit_direct(every[1], ("x",), message_id=message_id, stream="to") == [every[1]]
        assert emitter.emit(("x", "y"), message_id=message_id, stream="pair") == []
    rig.settle()
    assert [len(rig.user("all", index).own) for index in range(3)] == [2, 4, 2]


# Anchors, and what ends a tuple


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
