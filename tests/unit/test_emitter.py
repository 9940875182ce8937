"""Emitting, anchoring, acking and failing through the collectors: what is refused, and where the rest goes."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from squall import BasicCollector, ComponentError, Tuple
from squall.engine.api.tuple import UNTRACKED
from tests.unit.rig import STREAMS, Does, DoesBasic, Feeder, Rig, acks, keeps, streams_rig
from tests.unit.wired import wired

WRONG: list[tuple[Any, str, str]] = [
    (("x",), "nope", r"undeclared stream 'nope'; declared: 'default', 'pair', 'to'"),
    (("x", "y"), "default", r"stream 'default' emitted 2 values \('x', 'y'\), but its fields are \(value\)"),
    ((), "default", "emitted 0 values"),
    (("x",), "pair", r"stream 'pair' emitted 1 value .*\(a, b\)"),
    ("x", "default", r"must emit a tuple or list of values for \(value\), not 'x'"),
    (5, "default", "not 5"),
    (None, "default", "not None"),
    ({"value": 1}, "default", "must emit a tuple or list"),
    (("x",), "to", r"stream 'to' is a direct stream; use emit_direct"),
]
WRONG_DIRECT: list[tuple[Any, str, str]] = [
    (("x",), "default", "stream 'default' is not a direct stream"),
    (("x",), "nope", "undeclared stream 'nope'"),
    (("x", "y"), "to", "2 values"),
    (("elsewhere",), "to", r"to task 999; allowed: its subscribers' tasks, \["),
]
CASES = [
    *((False, subscribed, *case) for case in WRONG for subscribed in (True, False)),
    *((True, True, *case) for case in WRONG_DIRECT),
]


@pytest.mark.parametrize("anchors", ["basic", "none", "one", "several"])
@pytest.mark.parametrize(("direct", "subscribed", "values", "stream", "named"), CASES)
def test_wrong_emits_of_a_bolt(
    direct: bool, subscribed: bool, values: Any, stream: str, named: str, anchors: str
) -> None:
    errors: list[str] = []

    def execute(bolt: Any, tup: Tuple, *basic: BasicCollector) -> None:
        collector, given = basic[0] if basic else bolt.collector, {"stream": stream}
        if not basic:
            given["anchors"] = {"none": (), "one": tup, "several": [tup, tup]}[anchors]
        sink = 999 if values == ("elsewhere",) else bolt.context.component_tasks("sink")[0] if direct else 0
        emit = partial(collector.emit_direct, sink) if direct else collector.emit
        with pytest.raises(ComponentError, match=named) as refused:
            emit(values, **given)
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
        ("bolt", lambda it, tup: it.emit((1,), tup), "write anchors=..."),
        ("bolt", lambda it, tup: it.emit_direct(7, (1,), tup, "to"), "write anchors=..., stream='to'"),
        ("bolt", lambda it, tup: it.emit((1,), anchor=tup), "BoltCollector.emit() got an unexpected keyword argument"),
        ("spout", lambda it, _: it.emit((1,), 5), "write message_id=5"),
        ("spout", lambda it, _: it.emit((1,), "pair"), "write stream='pair'"),
        ("spout", lambda it, _: it.emit_batch(([1],), [5]), "write message_ids=..."),
        ("spout", lambda it, _: it.give_up((1,), 5, "why", "to"), "write stream='to'"),
    ],
)
def test_what_follows_the_values_has_a_name(who: str, wrong: Any, named: str) -> None:
    spout = Feeder(STREAMS)
    rig = streams_rig(spout, Does(keeps, STREAMS))
    spout.feed("x", id=1)
    rig.settle()
    bolt = rig.user("bolt-1")
    collector = bolt.collector if who == "bolt" else rig.user("spout").collector
    with pytest.raises((ComponentError, TypeError), match=re.escape(named)):
        wrong(collector, bolt.kept[0])


def test_emit_returns_the_tasks() -> None:
    rig = Rig(wired(
        spout=(Feeder(STREAMS), 1), all=(Does(acks), 3, "all spout", "direct spout/to"),
        first=(Does(acks), 2, "global spout"),
    ))
    emitter, every = rig.user("spout").collector, rig.plan.tasks_of("all")
    for message_id in (None, 1):
        found = emitter.emit(("x",), message_id=message_id)
        assert sorted(found) == sorted([*every, rig.plan.tasks_of("first")[0]])
        assert emitter.emit_direct(every[1], ("x",), message_id=message_id, stream="to") == [every[1]]
        assert emitter.emit(("x", "y"), message_id=message_id, stream="pair") == []
    rig.settle()
    assert [len(rig.user("all", index).own) for index in range(3)] == [2, 4, 2]


# Anchors, and what ends a tuple


@pytest.mark.parametrize("end", ["ack", "fail", None])
def test_neither_a_tuple_that_is_done_nor_anything_else_is_an_anchor(end: str | None) -> None:
    tried = []

    def execute(bolt: Does, tup: Tuple) -> None:
        collector, sink = bolt.collector, bolt.context.component_tasks("sink")[0]
        named, wrong = "as an anchor; allowed: an input tuple, or several", [5, ["x"], [None], "x", object()]
        if end:
            getattr(collector, end)(tup)
            named, wrong = r"bolt-1\[.*<Tuple from spout:.* value='x'>.*acked or failed before", [tup, [tup]]
        attempts = [partial(collector.ack, tup), partial(collector.fail, tup)] if end else []
        for anchors in wrong:
            attempts.append(partial(collector.emit, ("y",), anchors=anchors))
            attempts.append(partial(collector.emit_direct, sink, ("y",), anchors=anchors, stream="to"))
        for attempt in attempts:
            with pytest.raises(ComponentError, match=named):
                attempt()
            tried.append(attempt)
        if not end:
            collector.ack(tup)

    spout = Feeder()
    rig = streams_rig(spout, Does(execute, STREAMS))
    spout.feed("x", id=1)
    rig.settle()
    assert tried
    assert rig.user("sink").seen == []
    assert (spout.acked, spout.reasons) == (([], [(1, "failed")]) if end == "fail" else ([1], []))


@pytest.mark.parametrize("anchors", [(), [], None])
def test_without_anchors_nothing_is_tracked(anchors: Any) -> None:
    def execute(bolt: Does, tup: Tuple) -> None:
        sink = bolt.context.component_tasks("sink")[0]
        bolt.collector.emit(("y",), anchors=anchors)
        bolt.collector.emit_direct(sink, ("y",), anchors=anchors, stream="to")
        bolt.collector.ack(tup)

    spout, sink = Feeder(), Does(lambda bolt, tup: bolt.collector.fail(tup))
    middle = (Does(execute, STREAMS), 1, "shuffle spout")
    rig = Rig(wired(spout=(spout, 1), middle=middle, sink=(sink, 1, "shuffle middle", "direct middle/to")))
    spout.feed("x", id=1)
    rig.settle()
    assert len(sink.seen) == 2  # untracked tuples may be acked and failed as any other
    assert (spout.acked, spout.failures) == ([1], [])
    assert (UNTRACKED.children, UNTRACKED.mask, UNTRACKED.failed, UNTRACKED.others) == (0, 0, False, ())
