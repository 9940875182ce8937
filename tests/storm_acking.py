"""Storm's tests of acking and timeouts, for any `World`; see tests/storm_world.py."""

from __future__ import annotations

from typing import Any

from squall import Bolt, BoltCollector, TopologyBuilder, TopologyContext, Tuple
from squall.testing import AckTracker, FeederSpout
from tests.storm_world import World
from tests.unit.wired import wired


class Branch(Bolt):
    """Emits its input so many times, anchored, and acks it."""

    outputs = ("number",)

    def __init__(self, copies: int) -> None:
        self.copies = copies

    def prepare(self, conf: Any, context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        for _ in range(self.copies):
            self.collector.emit((tup[0],), anchors=tup)
        self.collector.ack(tup)


class Aggregate(Branch):
    """Keeps its inputs until there are so many, then emits one tuple that is anchored to all of them."""

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)
        if len(self.kept) == self.copies:
            self.collector.emit((tup[0],), anchors=self.kept)
            for kept in self.kept:
                self.collector.ack(kept)
            self.kept.clear()


class SelfAnchor(Branch):
    def execute(self, tup: Tuple) -> None:
        self.collector.emit((tup[0],), anchors=[tup, tup])
        self.collector.ack(tup)


def acking(world: World) -> None:
    feeders = [world.feeder("number") for _ in range(3)]
    builder = TopologyBuilder()
    aggregate = builder.set_bolt("aggregate", Aggregate(3))
    for index, (feeder, copies) in enumerate(zip(feeders, (2, 4, 1), strict=True), 1):
        builder.set_spout(f"spout-{index}", feeder)
        builder.set_bolt(f"branch-{index}", Branch(copies)).shuffle_grouping(f"spout-{index}")
        aggregate.shuffle_grouping(f"branch-{index}")
    builder.set_bolt("branch", Branch(2)).shuffle_grouping("aggregate")
    builder.set_bolt("sink", Branch(0)).shuffle_grouping("branch")
    world.start(builder)
    trackers = [AckTracker(feeder) for feeder in feeders]
    for fed, new_acks in [
        (1, [0, 0, 0]), (2, [1, 1, 0]), (1, [0, 0, 0]), (1, [1, 0, 0]), (3, [0, 0, 0]), (2, [1, 1, 1])
    ]:
        feeders[fed - 1].feed((1,))
        world.settle()
        assert [tracker.take() for tracker in trackers] == [(acks, 0) for acks in new_acks]


def acking_self_anchor(world: World) -> None:
    feeder = world.feeder("number")
    world.start(wired(
        spout=(feeder, 1), twice=(SelfAnchor(1), 1, "shuffle spout"), sink=(Branch(0), 1, "shuffle twice")
    ))
    tracker = AckTracker(feeder)
    for fed in (1, 3):
        for _ in range(fed):
            feeder.feed((1,))
        world.settle()
        assert tracker.take() == (fed, 0)
    assert [tracker.acks_of(message_id) for message_id in (1, 2, 3, 4)] == [1] * 4


class Keeps(Branch):
    """Acks all but tuples "keep" at once; on "reset" it resets the first of those, on "ack" it acks it."""

    def __init__(self) -> None:
        super().__init__(0)

    def execute(self, tup: Tuple) -> None:
        if tup[0] == "keep":
            self.kept.append(tup)
            return
        if tup[0] == "reset":
            self.collector.reset_timeout(self.kept[0])
        elif tup[0] == "ack":
            self.collector.ack(self.kept[0])
        self.collector.ack(tup)


def keeping(world: World) -> FeederSpout:
    feeder = world.feeder("what")
    builder = wired(spout=(feeder, 1), keeps=(Keeps(), 1, "shuffle spout"))
    world.start(builder, message_timeout_secs=world.timeout_secs)
    return feeder


def timeout(world: World) -> None:
    feeder = keeping(world)
    for what in ("pass", "keep", "pass"):
        feeder.feed((what,))
    world.settle()
    assert (feeder.acked, feeder.unanswered) == ([1, 3], [2])
    world.until("the timeout", lambda: feeder.failures)
    assert (feeder.acked, feeder.failed) == ([1, 3], [(2, "timeout")])
    feeder.feed(("ack",), "late")
    world.settle()
    assert (feeder.acked, feeder.failed) == ([1, 3, "late"], [(2, "timeout")])


def reset_timeout(world: World) -> None:
    feeder = keeping(world)
    feeder.feed(("keep",), "first")
    feeder.feed(("keep",), "second")
    world.settle()
    resets = 0

    def second_failed() -> bool:
        # Another one as soon as the last is acked: far more often than the timeout.
        nonlocal resets
        if resets in (0, *feeder.acked):
            resets += 1
            feeder.feed(("reset",), resets)
        return bool(feeder.failures)

    world.until("the second to time out", second_failed)
    feeder.feed(("ack",), "ack")
    world.until("the end", lambda: "ack" in feeder.acked)
    assert feeder.failed == [("second", "timeout")]
    assert "first" in feeder.acked


SCENARIOS = (acking, acking_self_anchor, timeout, reset_timeout)
