"""Emitting and anchoring through the collectors: what is refused, what it costs in edges, where it goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.builder import TopologyBuilder
from engine.collectors import UNTRACKED
from engine.errors import ComponentError
from engine.executor import TaskCrashed
from engine.stream import Stream
from engine.tuple import Tuple
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, acks, aggregates, chain, emits, keeps

STREAMS = {"default": ("value",), "pair": ("a", "b"), "to": Stream("value", direct=True)}


def streams_rig(spout: Feeder, middle: Any, subscribed: bool = True) -> Rig:
    """spout -> middle -> a sink on each of the middle's streams."""
    builder = chain(spout, middle)
    if subscribed:
        sinks = builder.set_bolt("sink", Does(acks), 2)
        sinks.shuffle_grouping("bolt-1").shuffle_grouping("bolt-1", stream="pair")
        sinks.direct_grouping("bolt-1", stream="to")
    return Rig(builder)


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda emit: emit(("x",), stream="nope"), r"undeclared stream 'nope'; declared: 'default', 'pair', 'to'"),
    (lambda emit: emit(("x", "y")), r"stream 'default' emitted 2 values \('x', 'y'\), but its fields are \(value\)"),
    (lambda emit: emit(()), "emitted 0 values"),
    (lambda emit: emit(("x",), stream="pair"), r"stream 'pair' emitted 1 values .*\(a, b\)"),
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
    (lambda direct, tasks: direct(999, ("x",), stream="to"), r"cannot send to task 999; its subscribers' tasks are \["),
]


@pytest.mark.parametrize("subscribed", [True, False])
@pytest.mark.parametrize(("wrong", "named"), WRONG)
@pytest.mark.parametrize("basic", [True, False])
def test_wrong_emits_of_a_bolt(wrong: Any, named: str, basic: bool, subscribed: bool) -> None:
    errors: list[str] = []

    def attempt(emit: Callable[..., Any]) -> None:
        with pytest.raises(ComponentError, match=named) as refused:
            wrong(emit)
        errors.append(str(refused.value))

    def plain(bolt: Does, tup: Tuple) -> None:
        attempt(bolt.collector.emit)
        attempt(lambda values, **more: bolt.collector.emit(values, tup, **more))
        attempt(lambda values, **more: bolt.collector.emit(values, [tup, tup], **more))
        bolt.collector.ack(tup)

    spout = Feeder()
    middle = (
        DoesBasic(lambda bolt, tup, collector: attempt(collector.emit), STREAMS) if basic else Does(plain, STREAMS)
    )
    rig = streams_rig(spout, middle, subscribed)
    spout.feed("x", id=1)
    rig.settle()
    assert errors
    assert all("bolt-1[" in error for error in errors)
    # What was refused is no part of the tree.
    assert spout.acked == [1]
    assert rig.tracked == 0


@pytest.mark.parametrize(("wrong", "named"), WRONG_DIRECT)
@pytest.mark.parametrize("basic", [True, False])
def test_wrong_direct_emits_of_a_bolt(wrong: Any, named: str, basic: bool) -> None:
    def attempt(bolt: Any, direct: Callable[..., Any]) -> None:
        with pytest.raises(ComponentError, match=named):
            wrong(direct, bolt.context.component_tasks("sink"))

    def plain(bolt: Does, tup: Tuple) -> None:
        attempt(bolt, lambda task, values, **more: bolt.collector.emit_direct(task, values, tup, **more))
        bolt.collector.ack(tup)

    spout = Feeder()
    rig = streams_rig(
        spout,
        DoesBasic(lambda bolt, tup, collector: attempt(bolt, collector.emit_direct), STREAMS)
        if basic else Does(plain, STREAMS),
    )
    spout.feed("x", id=1)
    rig.settle()
    assert spout.acked == [1]


@pytest.mark.parametrize("message_id", [None, 7])
@pytest.mark.parametrize(("wrong", "named"), WRONG)
def test_wrong_emits_of_a_spout(wrong: Any, named: str, message_id: Any) -> None:
    spout = Feeder(STREAMS)
    rig = Rig(chain(spout, Does(acks)))
    emit = rig.user("spout").collector.emit
    with pytest.raises(ComponentError, match=named):
        wrong(lambda values, stream="default": emit(values, message_id, stream))
    assert (rig.pending, rig.tracked) == (0, 0)


def test_a_wrong_emit_of_a_spout_ends_its_worker() -> None:
    spout = Feeder()
    rig = Rig(chain(spout, Does(acks)))
    spout.feed("x", "y")
    with pytest.raises(TaskCrashed, match=r"^spout\[3\] raised ComponentError: spout\[3\] stream 'default' emitted 2"):
        rig.settle()


@pytest.mark.parametrize("values", [("x",), ["x"]])
def test_lists_may_be_emitted_and_become_tuples(values: Any) -> None:
    sink = Does(acks)
    spout = Feeder()
    rig = Rig(chain(spout, DoesBasic(lambda bolt, tup, collector: collector.emit(values), ("value",)), sink))
    spout.feed("y", id=1)
    rig.settle()
    assert sink.seen == [("x",)]


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
        assert sorted(emitter.emit(("x",), message_id)) == sorted([*every, first])
        assert emitter.emit_direct(every[1], ("x",), message_id, stream="to") == [every[1]]
        assert emitter.emit(("x", "y"), message_id, stream="pair") == []
    rig.settle()
    assert [len(rig.user("all", index).own) for index in range(3)] == [2, 4, 2]


def test_a_direct_emit_to_a_stream_without_subscribers_goes_nowhere() -> None:
    spout = Feeder(STREAMS)
    rig = Rig(chain(spout, Does(acks)))
    assert rig.user("spout").collector.emit_direct(2, ("x",), 1, stream="to") == []
    rig.settle()
    assert spout.acked == [1]


# ---- done is done ----


@pytest.mark.parametrize("first", ["ack", "fail"])
@pytest.mark.parametrize("second", ["ack", "fail", "emit", "emit several", "emit_direct"])
def test_nothing_can_be_done_with_a_tuple_that_is_done(first: str, second: str) -> None:
    errors = []

    def execute(bolt: Does, tup: Tuple) -> None:
        collector = bolt.collector
        getattr(collector, first)(tup)
        sink = bolt.context.component_tasks("sink")[0]
        with pytest.raises(ComponentError, match=r"bolt-1\[.*<Tuple from spout:.* value='x'>.*acked or failed before") as e:
            {
                "ack": lambda: collector.ack(tup),
                "fail": lambda: collector.fail(tup),
                "emit": lambda: collector.emit(("y",), tup),
                "emit several": lambda: collector.emit(("y",), [tup]),
                "emit_direct": lambda: collector.emit_direct(sink, ("y",), tup, stream="to"),
            }[second]()
        errors.append(e)

    spout = Feeder()
    rig = streams_rig(spout, Does(execute, STREAMS))
    spout.feed("x", id=1)
    rig.settle()
    assert len(errors) == 1
    assert (spout.acked, spout.reasons) == (([1], []) if first == "ack" else ([], [(1, "failed")]))
    assert rig.user("sink").seen == []


def test_a_tuple_may_be_reset_after_it_is_done() -> None:
    def execute(bolt: Does, tup: Tuple) -> None:
        bolt.collector.ack(tup)
        bolt.collector.reset_timeout(tup)

    spout = Feeder()
    rig = Rig(chain(spout, Does(execute)))
    spout.feed("x", id=1)
    rig.settle()
    assert spout.acked == [1]


@pytest.mark.parametrize("anchors", [5, ["x"], [None], "x", object()])
def test_what_is_no_tuple_is_no_anchor(anchors: Any) -> None:
    refused = []

    def execute(bolt: Does, tup: Tuple) -> None:
        sink = bolt.context.component_tasks("sink")[0]
        for emit in (
            lambda: bolt.collector.emit(("y",), anchors),
            lambda: bolt.collector.emit_direct(sink, ("y",), anchors, stream="to"),
        ):
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
        bolt.collector.emit(("y",), anchors)
        bolt.collector.emit_direct(sink, ("y",), anchors, stream="to")
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


# ---- Storm's integration tests of anchoring ----


def test_acking_through_branches_and_aggregates() -> None:
    feeders = [Feeder(("number",)) for _ in range(3)]
    builder = TopologyBuilder()
    for index, (feeder, branches) in enumerate(zip(feeders, (2, 4, 1), strict=True), 1):
        builder.set_spout(f"spout-{index}", feeder)
        builder.set_bolt(f"branch-{index}", Does(emits(branches), ("number",))).shuffle_grouping(f"spout-{index}")
    aggregate = builder.set_bolt("aggregate", Does(aggregates(3), ("number",)))
    for index in (1, 2, 3):
        aggregate.shuffle_grouping(f"branch-{index}")
    builder.set_bolt("branch", Does(emits(2), ("number",))).shuffle_grouping("aggregate")
    builder.set_bolt("sink", Does(acks)).shuffle_grouping("branch")
    rig = Rig(builder)
    for feeder, new_acks in [
        (1, (0, 0, 0)), (2, (1, 1, 0)), (1, (0, 0, 0)), (1, (1, 0, 0)), (3, (0, 0, 0)), (2, (1, 1, 1))
    ]:
        before = [len(each.acked) for each in feeders]
        feeders[feeder - 1].feed(1, id=object())
        rig.settle()
        assert tuple(len(each.acked) - was for each, was in zip(feeders, before, strict=True)) == new_acks
    assert (rig.pending, rig.tracked) == (0, 0)


def test_ack_branching() -> None:
    spout = Feeder()
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    builder.set_bolt("left", Does(emits(1), ("value",))).shuffle_grouping("spout")
    builder.set_bolt("right", Does(emits(1), ("value",))).shuffle_grouping("spout")
    builder.set_bolt("aggregate", Does(aggregates(4), ("count",))).shuffle_grouping("left").shuffle_grouping("right")
    rig = Rig(builder)
    spout.feed("x", id=1)
    rig.settle()
    assert spout.acked == []
    spout.feed("y", id=2)
    rig.settle()
    assert sorted(spout.acked) == [1, 2]


def test_the_same_anchor_twice() -> None:
    def execute(bolt: Does, tup: Tuple) -> None:
        bolt.collector.emit(tup.values, [tup, tup])
        bolt.collector.ack(tup)

    spout = Feeder()
    rig = Rig(chain(spout, Does(execute, ("value",)), Does(acks)))
    spout.feed("x", id=0)
    rig.settle()
    assert spout.acked == [0]
    for message_id in (1, 2, 3):
        spout.feed("x", id=message_id)
    rig.settle()
    assert spout.acked == [0, 1, 2, 3]


@pytest.mark.parametrize("which", [0, 1])
def test_failing_what_is_anchored_to_two_trees_fails_both(which: int) -> None:
    def fails(bolt: Does, tup: Tuple) -> None:
        bolt.collector.fail(tup)

    spout = Feeder()
    rig = Rig(chain(spout, Does(aggregates(2), ("count",)), Does(emits(1), ("count",)), [Does(fails), Does(acks)][which]))
    spout.feed("x", id=1)
    spout.feed("y", id=2)
    rig.settle()
    if which == 0:
        assert sorted(spout.reasons) == [(1, "failed"), (2, "failed")]
        assert spout.failures[0][1].component == "bolt-3"
    else:
        assert sorted(spout.acked) == [1, 2]
    assert (rig.pending, rig.tracked) == (0, 0)


def test_an_anchored_and_an_untracked_tuple_together() -> None:
    spout = Feeder()
    rig = Rig(chain(spout, Does(aggregates(2), ("count",)), Does(acks)))
    spout.feed("x")
    spout.feed("y", id=2)
    rig.settle()
    assert spout.acked == [2]


def test_several_streams_to_one_bolt_are_one_tree() -> None:
    def execute(bolt: DoesBasic, tup: Tuple, collector: Any) -> None:
        collector.emit(("x",))
        collector.emit(("x", "y"), stream="pair")
        collector.emit_direct(bolt.context.component_tasks("sink")[0], ("z",), stream="to")
        collector.emit(("x",))

    spout = Feeder()
    rig = streams_rig(spout, DoesBasic(execute, STREAMS))
    spout.feed("x", id=1)
    rig.settle()
    assert sorted(rig.user("sink").seen) == [("x",), ("x",), ("x", "y"), ("z",)]
    assert spout.acked == [1]
