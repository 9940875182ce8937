"""The worker core when other workers die and are replaced: what fails, what is dropped, what goes to whom."""

from __future__ import annotations

from typing import Any

import pytest

from squall.engine.api.builder import TopologyBuilder
from squall.engine.api.collectors import BasicCollector
from squall.engine.api.component import CustomGrouping
from squall.engine.api.failure import Failure
from squall.engine.api.stream import Stream
from squall.engine.api.tuple import Tuple
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.spout_executor import SpoutExecutor
from tests.unit.net import TIMEOUT_SECS, counted, pending, placed, tracked
from tests.unit.rig import Does, DoesBasic, Feeder, acks, aggregates, chain, emits, keeps, work


@pytest.mark.parametrize("places", [("__acker spout", "bolt-1", "bolt-2"), ("spout", "bolt-1", "bolt-2", "__acker")])
def test_exactly_what_the_dead_worker_held_fails(places: tuple[str, ...]) -> None:
    spout, near, far = Feeder(("to",)), Does(keeps), Does(keeps)
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    builder.set_bolt("bolt-1", near).custom_grouping("spout", OnlyIf("near"))
    builder.set_bolt("bolt-2", far).custom_grouping("spout", OnlyIf("far"))
    net = placed(builder, *places)
    for number, to in enumerate(["near", "far", "near far", "near", "nobody"]):
        spout.feed(to, id=number)
    net.settle()
    assert spout.acked == [4]
    net.kill(2)
    net.settle()
    assert sorted(spout.reasons) == [(1, "worker died"), (2, "worker died")]
    for tup in near.kept:
        net.user("bolt-1").collector.ack(tup)
    net.settle()
    assert sorted(spout.acked) == [0, 3, 4]
    assert (tracked(net), pending(net)) == (0, 0)


class OnlyIf(CustomGrouping):
    """To the first task if the tuple's value says so."""

    def __init__(self, word: str) -> None:
        self.word = word

    def prepare(self, context: Any, source: str, stream: str, target_tasks: Any) -> None:
        self.targets = target_tasks[:1]

    def choose_tasks(self, source_task: int, values: Any) -> list[int]:
        return self.targets if self.word in values[0].split() else []


def directly(bolt: Does, tup: Tuple) -> None:
    bolt.collector.emit_direct(bolt.context.component_tasks("sink")[0], tup.values, tup, "to")
    bolt.collector.ack(tup)


def basic(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
    collector.emit(tup.values)


def basic_directly(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
    collector.emit_direct(bolt.context.component_tasks("sink")[0], tup.values, "to")


@pytest.mark.parametrize(
    "middle", [Does(emits(1)), Does(aggregates(2)), Does(directly), DoesBasic(basic), DoesBasic(basic_directly)]
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
    assert (tracked(net), pending(net)) == (0, 0)


@pytest.mark.parametrize("places", [("__acker spout", "bolt-1"), ("spout", "bolt-1", "__acker")])
def test_what_is_emitted_while_a_worker_is_dead_goes_to_its_replacement(places: tuple[str, ...]) -> None:
    spout, sink = Feeder(), Does(acks)
    net = placed(chain(spout, sink), *places)
    net.settle()
    net.kill(1)
    spout.feed("x", id=1)
    net.settle()
    assert (sink.seen, pending(net)) == ([], 1)
    net.restart(1)
    net.settle()
    assert sink.seen == [("x",)]
    assert (spout.acked, spout.failures) == ([1], [])
    assert (tracked(net), pending(net)) == (0, 0)
    assert net.core(0).dropped == 0


def test_what_waits_for_a_replacement_that_dies_as_well_fails_with_it() -> None:
    spout, sink = Feeder(), Does(acks)
    net = placed(chain(spout, sink), "__acker spout", "bolt-1")
    net.kill(1)
    spout.feed("x", id=1)
    net.settle()
    net.board[1] = (2, True)  # it is starting
    node = net.workers[0]
    assert node is not None
    node.follow()
    assert pending(net) == 1
    net.board[1] = (2, False)
    net.settle()
    assert spout.reasons == [(1, "worker died")]
    assert pending(net) == 0


def test_tuples_that_had_not_left_are_dropped_and_their_trees_fail() -> None:
    spout, sink = Feeder(), Does(acks)
    net = placed(chain(spout, sink), "__acker spout", "bolt-1")
    core = net.core(0)
    for number in range(4):
        spout.feed(number, id=number)
        work(core)
        if number == 1:
            core.close_parcels()
    assert core.for_others >= 4
    net.kill(1)
    net.settle()
    assert core.dropped == 4
    assert (core.for_others, core.backlog) == (0, 0)
    assert sorted(spout.reasons) == [(number, "worker died") for number in range(4)]
    assert counted(net, "spout").emitted == 4


def test_emits_that_were_dropped_are_counted_as_emits() -> None:
    spout = Feeder()
    forward = DoesBasic(lambda bolt, tup, collector: collector.emit(tup.values), ("value",))
    net = placed(chain(spout, forward, Does(acks)), "__acker spout bolt-1", "bolt-2")
    for number in range(4):
        spout.feed(number, id=number)
    work(net.core(0))
    net.kill(1)
    net.settle()
    assert net.core(0).dropped == 4
    assert (counted(net, "bolt-1").emitted, counted(net, "bolt-1").transferred) == (4, 0)


def test_when_the_acker_dies_the_spout_fails_its_trees_and_goes_on() -> None:
    spout, sink = Feeder(), Does(keeps)
    net = placed(chain(spout, sink), "spout bolt-1", "__acker")
    spout.feed("x", id=1)
    net.settle()
    net.kill(1)
    net.settle()
    assert spout.reasons == [(1, "worker died")]
    spout.feed("y", id=2)
    net.settle()
    net.restart(1)
    net.settle()
    for tup in sink.kept:
        net.user("bolt-1").collector.ack(tup)
    net.settle()
    assert spout.acked == [2]
    assert (tracked(net), pending(net)) == (0, 0)


def test_when_the_spout_dies_its_trees_are_forgotten() -> None:
    spout, sink = Feeder(), Does(keeps)
    net = placed(chain(spout, sink), "spout", "bolt-1 __acker")
    spout.feed("x", id=1)
    net.settle()
    assert tracked(net) == 1
    net.kill(0)
    net.settle()
    assert tracked(net) == 0
    net.restart(0)
    net.settle()
    assert (spout.acked, spout.failures) == ([], [])


def test_one_look_at_two_deaths_answers_the_replacement_of_one_of_them() -> None:
    """The acker's worker sees at once that the spout's worker was replaced and that another died, which a tree of the
    new spout has touched: the answer must not be dropped with what was for the old one."""
    spout, sink = Feeder(), Does(acks)
    net = placed(chain(spout, sink), "bolt-1", "spout", "__acker")
    net.settle()
    net.kill(1)
    net.restart(1)
    spout.feed("x", id=1)
    net.let(1)
    net.kill(0)
    net.let(2)
    net.restart(0)
    net.settle()
    assert spout.reasons == [(1, "worker died")]
    assert (tracked(net), pending(net)) == (0, 0)


def test_a_reset_for_a_spout_that_was_replaced_meanwhile_is_not_lost() -> None:
    def resets(bolt: Does, tup: Tuple) -> None:
        bolt.collector.reset_timeout(tup)

    spout, sink = Feeder(), Does(resets)
    net = placed(chain(spout, sink), "bolt-1", "spout", "__acker")
    net.settle()
    net.kill(1)
    net.restart(1)
    spout.feed("x", id=1)
    net.clock.advance(TIMEOUT_SECS - 1)
    net.let(1)
    net.clock.advance(TIMEOUT_SECS - 1)
    net.let(0)
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


def test_what_a_death_does_to_spouts_is_in_the_journal_before_anything_is_executed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be noticed in the middle of a turn."""
    happened: list[str] = []

    class Notes(Feeder):
        def on_failure(self, message_id: Any, failure: Failure) -> None:
            happened.append("told")

    spout = Notes()
    net = placed(chain(spout, Does(acks)), "spout __acker", "bolt-1")
    core = net.core(0)
    monkeypatch.setattr(SpoutExecutor, "write_journal", lambda executor: happened.append("journal"))
    spout.feed("x", id=1)
    work(core)
    happened.clear()
    core.peers_changed([(1, 1, False, False)], lambda slot, incarnation: None)
    assert happened == ["told", "journal"]
