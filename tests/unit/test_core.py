"""The worker core: what goes between executors, ackers and other workers, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from squall.engine.api.builder import TopologyBuilder
from squall.engine.api.collectors import BasicCollector
from squall.engine.api.component import CustomGrouping
from squall.engine.api.failure import Failure
from squall.engine.api.tuple import Tuple
from squall.engine.core.executor import TaskCrashed
from squall.engine.flow.ids import ACKER_MASK
from tests.unit.net import TIMEOUT_SECS, counted, pending, placed, tracked
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, acks, aggregates, chain, emits, keeps, work

PLACES = [
    ("__acker spout", "bolt-1 bolt-2"),
    ("spout", "bolt-1 bolt-2 __acker"),
    ("spout", "bolt-1", "bolt-2", "__acker"),
    ("__acker bolt-2", "spout bolt-1"),
    ("spout bolt-1 bolt-2", "__acker"),
]


@pytest.mark.parametrize("places", PLACES)
def test_a_tree_over_several_workers_is_acked(places: tuple[str, ...]) -> None:
    spout, sink = Feeder(), Does(acks)
    net = placed(chain(spout, Does(emits(3), ("value",)), sink), *places)
    for number in range(5):
        spout.feed(number, id=number)
    net.settle()
    assert sorted(spout.acked) == [0, 1, 2, 3, 4]
    assert sink.seen == [(number,) for number in range(5) for _ in range(3)]
    assert (tracked(net), pending(net), net.quiet) == (0, 0, True)
    assert counted(net, "bolt-1").transferred == counted(net, "bolt-2").executed == 15
    assert sum(core.backlog + core.for_others for core in net.cores) == 0


@pytest.mark.parametrize("places", PLACES)
def test_trees_that_are_joined_over_several_workers(places: tuple[str, ...]) -> None:
    spout = Feeder()
    net = placed(chain(spout, Does(aggregates(3), ("count",)), Does(acks)), *places)
    for number in range(7):
        spout.feed(number, id=number)
    net.settle()
    assert sorted(spout.acked) == list(range(6))
    assert (tracked(net), pending(net)) == (1, 1)


@pytest.mark.parametrize("places", PLACES)
def test_a_failure_is_told_to_the_spout_with_its_place(places: tuple[str, ...]) -> None:
    spout = Feeder()
    net = placed(chain(spout, Does(emits(2), ("value",)), Does(lambda bolt, tup: bolt.collector.fail(tup))), *places)
    spout.feed("x", id=1)
    net.settle()
    (failed,) = spout.failures
    task = net.plan.tasks_of("bolt-2")[0]
    assert failed == (1, Failure("failed", "bolt-2", task, net.plan.worker_names[net.plan.task_worker[task]]))
    assert (tracked(net), pending(net)) == (0, 0)


@pytest.mark.parametrize("places", PLACES)
def test_a_timeout_leaves_nothing_with_the_acker(places: tuple[str, ...]) -> None:
    spout, sink = Feeder(), Does(keeps)
    net = placed(chain(spout, Does(emits(1), ("value",)), sink), *places)
    for number in range(3):
        spout.feed(number, id=number)
    net.settle()
    assert (tracked(net), pending(net)) == (3, 3)
    net.clock.advance(TIMEOUT_SECS)
    net.settle()
    assert sorted(spout.reasons) == [(0, "timeout"), (1, "timeout"), (2, "timeout")]
    assert (tracked(net), pending(net)) == (0, 0)


@pytest.mark.parametrize("places", PLACES)
def test_a_reset_finds_its_spout(places: tuple[str, ...]) -> None:
    spout, sink = Feeder(), Does(keeps)
    net = placed(chain(spout, Does(emits(1), ("value",)), sink), *places)
    spout.feed("reset", id=1)
    spout.feed("not reset", id=2)
    net.settle()
    net.clock.advance(TIMEOUT_SECS - 1)
    (tup,) = [tup for tup in sink.kept if tup[0] == "reset"]
    net.user("bolt-2").collector.reset_timeout(tup)
    net.settle()
    net.clock.advance(TIMEOUT_SECS - 1)
    net.settle()
    assert spout.reasons == [(2, "timeout")]
    net.clock.advance(1)
    net.settle()
    assert spout.reasons == [(2, "timeout"), (1, "timeout")]


def test_a_tree_is_tracked_in_its_spouts_worker_where_there_is_an_acker() -> None:
    builder = TopologyBuilder()
    spout = Feeder()
    builder.set_spout("spout", spout, parallelism=3)
    builder.set_bolt("bolt", Does(keeps)).shuffle_grouping("spout")
    net = placed(builder, "spout __acker", "spout __acker", "spout bolt", ackers=2)
    for number in range(6):
        spout.feed(number, id=number)
    net.settle()
    for worker, core in enumerate(net.cores[:2]):
        (task,) = core.spout_tasks
        roots = core.spout_tasks[task][1].pending.trees
        assert {root & ACKER_MASK for root in roots} <= {worker}


def test_batches_of_one_sender_arrive_in_order_and_done_comes_at_the_end() -> None:
    spout, sink = Feeder(), Does(acks)
    net = placed(chain(spout, sink), "spout __acker", "bolt-1")
    sender, receiver = net.core(0), net.core(1)
    done = []
    for begin in (0, 10, 20):
        for number in range(begin, begin + 10):
            spout.feed(number, id=number)
        work(sender)
        assert sender.for_others >= 10
        assert list(sender.close_parcels()) == [1]
        parcel = sender.take_parcel(1)
        assert sender.for_others == 0
        receiver.receive(parcel, lambda begin=begin: done.append(begin))  # type: ignore[misc]
    assert done == []
    assert receiver.backlog == 30
    work(receiver)
    assert done == [0, 10, 20]
    assert sink.seen == [(number,) for number in range(30)]


def test_parcels_are_closed_for_whom_they_are_asked_for() -> None:
    spout, near, far = Feeder(), Does(acks), Does(acks)
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    builder.set_bolt("near", near).all_grouping("spout")
    builder.set_bolt("far", far).all_grouping("spout")
    net = placed(builder, "spout __acker", "near", "far")
    sender = net.core(0)
    spout.feed("x", id=1)
    work(sender)
    assert sender.close_parcels({2}) == [2]
    assert [batch.target for batch in sender.take_parcel(2).batches] == net.plan.tasks_of("far")
    assert sender.for_others == 1
    assert sender.close_parcels(set()) == []
    assert sender.close_parcels() == [1]


def test_a_parcel_without_tuples_is_done_at_once() -> None:
    spout, sink = Feeder(), Does(acks)
    net = placed(chain(spout, sink), "spout", "bolt-1 __acker")
    sender, receiver = net.core(0), net.core(1)
    sender.tracking.init_tree(1 << 16, 5, 3, 0)
    sender.close_parcels()
    done: list[bool] = []
    receiver.receive(sender.take_parcel(1), lambda: done.append(True))
    assert done == [True]
    assert tracked(net) == 1


def test_a_bolt_may_feed_itself_for_ever_without_holding_up_the_turn() -> None:
    def again(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit(tup.values)

    spout, loop, other = Feeder(), DoesBasic(again, ("value",)), Does(acks)
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


def test_user_objects_are_opened_once_per_task_in_task_order() -> None:
    opened = []

    class Opens(Does):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            super().prepare(conf, context, collector)
            opened.append((context.task_id, context.task_index, context.worker, context.attempt, id(self)))

    builder = chain(Feeder())
    builder.set_bolt("bolt", Opens(acks), 2, 4).shuffle_grouping("spout")
    rig = Rig(builder)
    assert [row[:4] for row in opened] == [(task, task - 2, "node-1:6700", 1) for task in (2, 3, 4, 5)]
    assert len({row[4] for row in opened}) == 4
    assert rig.user("bolt", 2).context.component_tasks("bolt") == [2, 3, 4, 5]
    assert rig.user("bolt").context.component_tasks("nothing") == []


def test_components_see_their_settings() -> None:
    builder = TopologyBuilder()
    builder.set_spout("spout", Feeder()).set_config(max_spout_pending=5)
    builder.set_bolt("bolt", Does(acks)).shuffle_grouping("spout")
    settings: dict[str, Any] = {"my.key": "mine", "max_attempts": 3}
    rig = Rig(builder, **settings)
    conf = rig.user("spout").conf
    assert (conf["max_spout_pending"], conf["my.key"], conf["squall.max.attempts"]) == (5, "mine", 3)
    assert rig.user("bolt").conf["max_spout_pending"] != 5


@pytest.mark.parametrize("method", ["prepare", "choose_tasks"])
def test_what_a_custom_grouping_raises_names_the_sender(method: str) -> None:
    def raises(*args: Any) -> None:
        raise ValueError("no way")

    spout = Feeder()
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    grouping = type("Raises", (CustomGrouping,), {method: raises})()
    builder.set_bolt("bolt", Does(acks)).custom_grouping("spout", grouping)
    spout.feed("x", id=1)
    with pytest.raises(TaskCrashed, match=r"^spout\[3\] raised ValueError: no way in "):
        Rig(builder).settle()


def test_a_message_that_fails_too_often_is_a_dead_letter() -> None:
    class Again(Feeder):
        def on_failure(self, message_id: Any, failure: Failure) -> None:
            super().on_failure(message_id, failure)
            self.feed("poison", id=message_id)

    spout = Again()
    rig = Rig(chain(spout, Does(lambda bolt, tup: bolt.collector.fail(tup))), max_attempts=3)
    spout.feed("poison", id=1)
    rig.settle()
    assert [failure.attempt for _, failure in spout.failures] == [1, 2]
    ((component, task, message_id, values, failure),) = rig.dead_letters
    assert (component, task, message_id, values) == ("spout", 3, 1, ("poison",))
    assert (failure.reason, failure.component, failure.attempt) == ("failed", "bolt-1", 3)
    assert spout.acked == [1]  # the source may move on
    rig.core.refresh_gauges()
    stats = rig.core.stats[3]
    assert (stats.emitted, stats.acked, stats.failed, stats.replayed, stats.dead_letters) == (3, 0, 2, 2, 1)


def test_an_answer_that_emits_to_nobody_is_answered_too() -> None:
    class Chains(Feeder):
        def ack(self, message_id: Any) -> None:
            super().ack(message_id)
            if message_id < 5:
                self.collector.emit(("x",), message_id + 1, stream="nobody")

    spout = Chains({"default": ("value",), "nobody": ("value",)})
    rig = Rig(chain(spout, Does(acks)))
    spout.feed("x", id=1)
    rig.settle()
    assert spout.acked == [1, 2, 3, 4, 5]
    assert rig.core.quiet
