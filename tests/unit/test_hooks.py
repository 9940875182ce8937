"""Task hooks: what a component does is seen, in order, by those it asked to look; without any, nothing is wrapped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import pytest

from squall.engine.api.hooks import EmitInfo, TaskHook
from squall.engine.core.executor import TaskCrashed
from squall.engine.errors import ComponentError, FailedTuple
from squall.engine.flow.bolt_collectors import BasicCollector
from tests.unit.batch_rig import BatchFeeder, DoesBatch, fails
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, acks, chain


def noting(name: str, *what: str) -> Callable[[Log, Any], None]:
    """A method that writes down what it is told."""
    told = attrgetter(*what)
    return lambda log, info: log.seen.append((name, told(info)))


class Log(TaskHook):
    """Writes down what it sees."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def prepare(self, conf: Mapping[str, Any], context: Any) -> None:
        self.seen.append(("prepare", context.component_id))

    def emit(self, info: EmitInfo) -> None:
        self.seen.append(("emit", info.stream, info.values, len(info.out_tasks)))

    spout_ack = noting("spout_ack", "message_id", "complete_latency_ms")
    spout_fail = noting("spout_fail", "message_id", "failure.reason", "fail_latency_ms")
    bolt_execute = noting("bolt_execute", "tup.values", "execute_latency_ms")
    bolt_ack = noting("bolt_ack", "tup.values")
    bolt_fail = noting("bolt_fail", "tup.values")

    def cleanup(self) -> None:
        self.seen.append("cleanup")


def watched(component: Any, *hooks: Any) -> Any:
    component.watched_by = hooks
    return component


def test_the_hook_of_a_spout_and_that_of_a_bolt_see_what_their_own_does() -> None:
    of_spout, of_bolt = Log(), Log()

    def execute(bolt: Does, tup: Any) -> None:
        bolt.collector.emit(("out",), anchors=tup)
        rig.clock.advance(0.002)
        (bolt.collector.fail if tup[0] == "bad" else bolt.collector.ack)(tup)

    spout = watched(Feeder({"default": ("value",), "other": ("value",)}), of_spout)
    rig = Rig(chain(spout, watched(Does(execute, ("value",)), of_bolt)))
    spout.feed("good", id=1)
    spout.feed("bad", id=2)
    spout.feed("elsewhere", id=4, stream="other")
    rig.settle()
    assert of_spout.seen == [
        ("prepare", "spout"), ("emit", "default", ("good",), 1), ("emit", "default", ("bad",), 1),
        ("emit", "other", ("elsewhere",), 0), ("spout_ack", (4, 0.0)), ("spout_ack", (1, 4.0)),
        ("spout_fail", (2, "failed", 4.0)),
    ]  # fmt: skip
    assert of_bolt.seen == [
        ("prepare", "bolt-1"),
        ("emit", "default", ("out",), 0), ("bolt_ack", ("good",)), ("bolt_execute", (("good",), 2.0)),
        ("emit", "default", ("out",), 0), ("bolt_fail", ("bad",)), ("bolt_execute", (("bad",), 2.0)),
    ]  # fmt: skip
    assert (spout.acked, spout.reasons) == ([4, 1], [(2, "failed")])
    assert rig.close() == []
    assert of_spout.seen[-1] == of_bolt.seen[-1] == "cleanup"


def test_basic_bolts_are_seen_acking_after_execute_and_failing_by_failed_tuple() -> None:
    log, feeder = Log(), Feeder()

    def execute(bolt: DoesBasic, tup: Any, collector: BasicCollector) -> None:
        collector.emit(("out",))
        if tup[0] == "bad":
            raise FailedTuple("no")

    rig = Rig(chain(feeder, watched(DoesBasic(execute, ("value",)), log)))
    feeder.feed("good", id=1)
    feeder.feed("bad", id=2)
    rig.settle()
    assert log.seen[1:] == [
        ("emit", "default", ("out",), 0), ("bolt_execute", (("good",), 0.0)), ("bolt_ack", ("good",)),
        ("emit", "default", ("out",), 0), ("bolt_fail", ("bad",)),
    ]  # fmt: skip
    assert (feeder.acked, feeder.reasons) == ([1], [(2, "failed")])


def test_hooks_see_every_row_of_a_batch() -> None:
    log = Log()
    rig = Rig(chain(watched(BatchFeeder(), log), watched(DoesBatch(fails("b"), ("value",)), log)))
    rig.user("spout").feed(["a", "b"], ids=[1, 2])
    rig.settle()
    emits = [("emit", "default", (value,), count) for count in (1, 0) for value in "ab"]
    assert sorted(log.seen[2:], key=str) == sorted([
        *emits, ("bolt_execute", (("a",), 0.0)), ("bolt_execute", (("b",), 0.0)), ("bolt_ack", ("a",)),
        ("bolt_fail", ("b",)), ("spout_ack", (1, 0.0)), ("spout_fail", (2, "failed", 0.0)),
    ], key=str)


def test_what_is_no_hook_is_refused_and_so_is_one_that_comes_late() -> None:
    with pytest.raises(TaskCrashed, match=r"spout\[\d\] adds 'x' as a hook; allowed: a TaskHook"):
        Rig(chain(watched(Feeder(), "x")))
    rig = Rig(chain(Feeder(), Does(acks)))
    with pytest.raises(ComponentError, match="adds a hook too late; add hooks in open or prepare"):
        rig.user("spout").context.add_hook(Log())
