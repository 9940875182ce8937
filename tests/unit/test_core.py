"""The worker core: what goes between executors, ackers and other workers, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from squall import BasicCollector, Failure, Stream, Tuple
from squall.engine.core.executor import TaskCrashed
from tests.unit.lab import forwards
from tests.unit.rig import (
    TIMEOUT_SECS,
    Does,
    DoesBasic,
    Feeder,
    Rig,
    acks,
    aggregates,
    chain,
    emits,
    keeps,
    placed,
)


def test_a_bolt_may_feed_itself_for_ever_without_holding_up_the_turn() -> None:
    spout, loop, other = Feeder(), DoesBasic(forwards, ("value",)), Does(acks)
    builder = chain(spout)
    builder.set_bolt("loop", loop).shuffle_grouping("spout").shuffle_grouping("loop")
    builder.set_bolt("other", other).shuffle_grouping("spout")
    rig = Rig(builder)
    spout.feed("x", id=1)
    for _ in range(3):
        assert rig.step()
    assert other.seen == [("x",)]
    assert 3 <= len(loop.seen) < 100
    assert rig.pending == 1
    assert not rig.core.quiet


# When other workers die and are replaced; any interleaving of it: tests/sim.


def directly(bolt: Does, tup: Tuple) -> None:
    bolt.collector.emit_direct(bolt.context.component_tasks("sink")[0], tup.values, anchors=tup, stream="to")
    bolt.collector.ack(tup)


def basic_directly(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
    collector.emit_direct(bolt.context.component_tasks("sink")[0], tup.values, stream="to")


@pytest.mark.parametrize(
    "middle", [Does(emits(1)), Does(aggregates(2)), Does(directly), DoesBasic(forwards), DoesBasic(basic_directly)]
)
def test_what_was_sent_on_to_the_dead_worker_fails_however_it_was_emitted(middle: Any) -> None:
    middle.outputs = {"default": ("value",), "to": Stream("value", direct=True)}
    spout, sink = Feeder(), Does(keeps)
    builder = chain(spout, middle)
    builder.set_bolt("sink", sink).shuffle_grouping("bolt-1").direct_grouping("bolt-1", "to")
    net = placed(builder, "__acker spout", "bolt-1", "sink")
    spout.feed("x", id=1)
    spout.feed("y", id=2)
    net.settle()
    assert sink.kept
    net.kill(2)
    net.settle()
    assert sorted(spout.reasons) == [(1, "worker died"), (2, "worker died")]
    assert (net.tracked, net.pending) == (0, 0)


def test_a_reset_for_a_spout_that_was_replaced_meanwhile_is_not_lost() -> None:
    def resets(bolt: Does, tup: Tuple) -> None:
        bolt.collector.reset_timeout(tup)

    spout, sink = Feeder(), Does(resets)
    net = placed(chain(spout, sink), "bolt-1", "spout", "__acker")
    net.settle()
    net.kill(1)
    net.restart(1)
    sinks_worker, spouts_worker, _ = net.workers
    assert sinks_worker is not None
    assert spouts_worker is not None
    spout.feed("x", id=1)
    net.clock.advance(TIMEOUT_SECS - 1)
    spouts_worker.turn()
    net.clock.advance(TIMEOUT_SECS - 1)
    sinks_worker.turn()
    net.settle()
    net.clock.advance(TIMEOUT_SECS - 1)
    net.settle()
    assert spout.reasons == []
    net.advance(TIMEOUT_SECS)
    assert spout.reasons == [(1, "timeout")]


@pytest.mark.parametrize("places", [("spout bolt-1", "__acker"), ("spout __acker", "bolt-1")])
def test_a_spout_that_raises_when_it_is_told_of_a_death_is_named(places: tuple[str, ...]) -> None:
    class Raises(Feeder):
        def on_failure(self, message_id: Any, failure: Failure) -> None:
            raise ValueError("not now")

    spout = Raises()
    net = placed(chain(spout, Does(keeps)), *places)
    spout.feed("x", id=1)
    net.settle()
    net.kill(1)
    with pytest.raises(TaskCrashed, match=r"^spout\[3\] raised ValueError: not now in on_failure"):
        net.settle()
