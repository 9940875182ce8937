"""Task hooks: what a component does is seen, in order, by those it asked to look; without any, nothing is wrapped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from squall.engine.api.hooks import (
    BoltAckInfo,
    BoltExecuteInfo,
    BoltFailInfo,
    EmitInfo,
    SpoutAckInfo,
    SpoutFailInfo,
    TaskHook,
)
from squall.engine.build.builder import TopologyBuilder
from squall.engine.core.closing import close_tasks
from squall.engine.core.executor import TaskCrashed
from squall.engine.errors import ComponentError, FailedTuple
from squall.engine.flow.bolt_collectors import BasicCollector
from tests.unit.batch_rig import BatchFeeder, DoesBatch, fails
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, acks


class Log(TaskHook):
    """Writes down what it sees."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def prepare(self, conf: Mapping[str, Any], context: Any) -> None:
        self.seen.append(("prepare", context.component_id))

    def emit(self, info: EmitInfo) -> None:
        self.seen.append(("emit", info.stream, info.values, len(info.out_tasks)))

    def spout_ack(self, info: SpoutAckInfo) -> None:
        self.seen.append(("spout_ack", info.message_id, info.complete_latency_ms))

    def spout_fail(self, info: SpoutFailInfo) -> None:
        self.seen.append(("spout_fail", info.message_id, info.failure.reason, info.fail_latency_ms))

    def bolt_execute(self, info: BoltExecuteInfo) -> None:
        self.seen.append(("bolt_execute", info.tup.values, info.execute_latency_ms))

    def bolt_ack(self, info: BoltAckInfo) -> None:
        self.seen.append(("bolt_ack", info.tup.values))

    def bolt_fail(self, info: BoltFailInfo) -> None:
        self.seen.append(("bolt_fail", info.tup.values))

    def cleanup(self) -> None:
        self.seen.append("cleanup")


def hooked(component: Any, *hooks: Any) -> Any:
    """The component, which adds hooks when it is set up."""
    name = "open" if hasattr(component, "open") else "prepare"
    set_up = getattr(type(component), name)

    def adds(self: Any, conf: Any, context: Any, *collector: Any) -> None:
        set_up(self, conf, context, *collector)
        for hook in hooks:
            context.add_hook(hook)

    component.__class__ = type("Hooked", (type(component),), {name: adds})
    return component


def rig(spout: Any, bolt: Any, **settings: Any) -> Rig:
    builder = TopologyBuilder()
    builder.set_spout("source", spout)
    builder.set_bolt("bolt", bolt).shuffle_grouping("source")
    return Rig(builder, **settings)


def test_spout_hook_sees_emits_acks_and_failures() -> None:
    log = Log()
    feeder = hooked(Feeder({"default": ("value",), "other": ("value",)}), log)
    made = rig(feeder, Does(lambda bolt, tup: (bolt.collector.fail if tup[0] == "bad" else bolt.collector.ack)(tup)))
    feeder.feed("good", id=1)
    feeder.feed("bad", id=2)
    feeder.feed("untracked")
    feeder.feed("elsewhere", id=4, stream="other")
    made.settle()
    assert log.seen[0] == ("prepare", "source")
    assert [entry for entry in log.seen if entry[0] == "emit"] == [
        ("emit", "default", ("good",), 1), ("emit", "default", ("bad",), 1), ("emit", "default", ("untracked",), 1),
        ("emit", "other", ("elsewhere",), 0),
    ]  # fmt: skip
    assert ("spout_ack", 1, 0.0) in log.seen
    assert ("spout_fail", 2, "failed", 0.0) in log.seen
    assert feeder.acked == [4, 1]
    assert feeder.reasons == [(2, "failed")]
    assert close_tasks(made.core) == []
    assert log.seen[-1] == "cleanup"


def test_bolt_hook_sees_execute_ack_and_fail_and_emits() -> None:
    log = Log()
    feeder = Feeder()

    def execute(bolt: Does, tup: Any) -> None:
        bolt.collector.emit(("out",), anchors=tup)
        made.clock.advance(0.002)
        (bolt.collector.fail if tup[0] == "bad" else bolt.collector.ack)(tup)

    made = rig(feeder, hooked(Does(execute, ("value",)), log))
    feeder.feed("good", id=1)
    feeder.feed("bad", id=2)
    made.settle()
    assert log.seen == [
        ("prepare", "bolt"),
        ("emit", "default", ("out",), 0), ("bolt_ack", ("good",)), ("bolt_execute", ("good",), 2.0),
        ("emit", "default", ("out",), 0), ("bolt_fail", ("bad",)), ("bolt_execute", ("bad",), 2.0),
    ]  # fmt: skip


def test_basic_bolts_are_seen_acking_after_execute_and_failing_by_failed_tuple() -> None:
    log = Log()
    feeder = Feeder()

    def execute(bolt: DoesBasic, tup: Any, collector: BasicCollector) -> None:
        collector.emit(("out",))
        if tup[0] == "bad":
            raise FailedTuple("no")

    made = rig(feeder, hooked(DoesBasic(execute, ("value",)), log))
    feeder.feed("good", id=1)
    feeder.feed("bad", id=2)
    made.settle()
    assert log.seen[1:] == [
        ("emit", "default", ("out",), 0), ("bolt_execute", ("good",), 0.0), ("bolt_ack", ("good",)),
        ("emit", "default", ("out",), 0), ("bolt_fail", ("bad",)),
    ]  # fmt: skip
    assert (feeder.acked, feeder.reasons) == ([1], [(2, "failed")])


def test_hooks_see_every_row_of_a_batch() -> None:
    log = Log()
    made = rig(hooked(BatchFeeder(), log), hooked(DoesBatch(fails("b"), ("value",)), log))
    made.user("source").feed(["a", "b"], ids=[1, 2])
    made.settle()
    emits = [("emit", "default", (value,), count) for count in (1, 0) for value in "ab"]
    assert sorted(log.seen[2:], key=str) == sorted([
        *emits, ("bolt_execute", ("a",), 0.0), ("bolt_execute", ("b",), 0.0), ("bolt_ack", ("a",)),
        ("bolt_fail", ("b",)), ("spout_ack", 1, 0.0), ("spout_fail", 2, "failed", 0.0),
    ], key=str)


def test_what_is_no_hook_is_refused_and_so_is_one_that_comes_late() -> None:
    with pytest.raises(TaskCrashed, match=r"source\[\d\] adds 'x' as a hook; allowed: a TaskHook"):
        rig(hooked(Feeder(), "x"), Does(acks))
    with pytest.raises(ComponentError, match="adds a hook too late; add hooks in open or prepare"):
        rig(Feeder(), Does(acks)).user("source").context.add_hook(Log())
