"""Id arithmetic and races of the tracking through real components and worker cores (2.2 and 2.3 of Storm's inventory).

What one class alone decides is in the tests of that class: `test_acker`, `test_pending`, `test_anchoring`, `test_ids`.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from squall.engine.api.builder import TopologyBuilder
from squall.engine.api.tuple import Tuple
from squall.engine.errors import ComponentError
from squall.engine.flow.parcel import Parcel
from tests.held import early, run_of
from tests.unit.net import TIMEOUT_SECS, Net, placed, tracked
from tests.unit.rig import Does, Feeder, Rig, acks, chain, keeps, work

SPOUT, ACKER, BOLT = 0, 1, 2


def lacks(rig: Rig, *tuples: Tuple) -> bool:
    """Whether the acks of these tuples are all that the acker still waits for."""
    acker = copy.deepcopy(rig.core.ackers[0])
    acker.ack_many([(run_of(tup).root, edge(tup)) for tup in tuples], {})
    return [failure for _, _, failure in acker.answers] == [None]


def edge(tup: Tuple) -> int:
    return run_of(tup).edge


def fan() -> tuple[Rig, Feeder, Does, Does, Does]:
    """spout -> left and right; left -> end. Everybody keeps what he gets."""
    spout, left, right, end = Feeder(), Does(keeps, ("value",)), Does(keeps), Does(keeps)
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    builder.set_bolt("left", left).shuffle_grouping("spout")
    builder.set_bolt("right", right).shuffle_grouping("spout")
    builder.set_bolt("end", end).shuffle_grouping("left")
    rig = Rig(builder)
    spout.feed("x", id=1)
    rig.settle()
    return rig, spout, left, right, end


def test_each_target_task_has_an_edge_of_its_own_and_init_is_their_xor() -> None:
    rig, _, left, right, _ = fan()
    (one,), (other,) = left.kept, right.kept
    assert run_of(one).root == run_of(other).root != 0
    assert 0 != edge(one) != edge(other) != 0
    assert lacks(rig, one, other)


def test_an_ack_takes_a_tuples_edge_out_and_its_childrens_in() -> None:
    rig, spout, left, right, end = fan()
    collector = rig.user("left").collector
    collector.emit(("a",), left.kept[0])
    rig.settle()
    assert lacks(rig, left.kept[0], right.kept[0])
    collector.emit(("b",), left.kept[0])
    rig.settle()
    assert lacks(rig, left.kept[0], right.kept[0]), "what is emitted is told with the ack, not before"
    collector.ack(left.kept[0])
    rig.settle()
    assert len(end.kept) == 2
    assert lacks(rig, *end.kept, right.kept[0])
    for tup in end.kept:
        rig.user("end").collector.ack(tup)
    rig.settle()
    assert spout.acked == []
    rig.user("right").collector.ack(right.kept[0])
    rig.settle()
    assert (spout.acked, rig.tracked) == ([1], 0)


def test_a_tuple_that_goes_to_no_task_is_acked_at_once() -> None:
    spout = Feeder({"default": ("value",), "unheard": ("value",)})
    rig = Rig(chain(spout, Does(acks)))
    spout.feed("x", id=1, stream="unheard")
    rig.settle()
    assert (spout.acked, rig.pending, rig.tracked) == ([1], 0, 0)


def test_nothing_is_told_of_an_untracked_tuple() -> None:
    spout, bolt = Feeder(), Does(keeps)
    rig = Rig(chain(spout, bolt))
    for value in "ab":
        spout.feed(value)
    rig.settle()
    collector, outbox = rig.user("bolt-1").collector, rig.core.outbox
    collector.ack(bolt.kept[0])
    collector.reset_timeout(bolt.kept[1])
    collector.fail(bolt.kept[1])
    assert (outbox.take_acks(), outbox.take_fails(), outbox.take_resets()) == (({}, {}), {}, [])


@pytest.mark.parametrize("ackers", [0, 1])
def test_without_ackers_nothing_is_told_but_wrong_use_is_wrong(ackers: int) -> None:
    spout, bolt = Feeder(), Does(keeps)
    rig = Rig(chain(spout, bolt), ackers=ackers)
    spout.feed("x", id=1)
    rig.settle()
    assert spout.acked == ([] if ackers else [1])
    collector = rig.user("bolt-1").collector
    collector.ack(bolt.kept[0])
    assert bool(rig.core.outbox) == bool(ackers)
    with pytest.raises(ComponentError, match="acked or failed before"):
        collector.ack(bolt.kept[0])


def test_an_attempt_has_a_root_of_its_own_and_late_acks_do_not_reach_it() -> None:
    spout, bolt = Feeder(), Does(keeps)
    rig = Rig(chain(spout, bolt), message_timeout_secs=TIMEOUT_SECS)
    spout.feed("first", id=1)
    rig.settle()
    rig.advance(TIMEOUT_SECS)
    assert spout.reasons == [(1, "timeout")]
    spout.feed("second", id=1)
    rig.settle()
    first, second = bolt.kept
    assert run_of(first).root != run_of(second).root
    collector = rig.user("bolt-1").collector
    collector.ack(first)
    rig.settle()
    assert (spout.acked, rig.pending) == ([], 1)
    collector.ack(second)
    rig.settle()
    assert (spout.acked, rig.pending, rig.tracked) == ([1], 0, 0)


# ---- races between the workers of the spout, the acker and a bolt ----


def apart(spout: Feeder, bolt: Does) -> Net:
    return placed(chain(spout, bolt), "spout", "__acker", "bolt-1")


def step(net: Net, worker: int) -> None:
    work(net.core(worker))
    net.core(worker).close_parcels()


def hand_over(net: Net, source: int, target: int) -> Parcel:
    """What one worker has for another arrives there."""
    step(net, source)
    parcel = net.core(source).take_parcel(target)
    net.core(target).receive(parcel, lambda: None)
    step(net, target)
    return parcel


def refuses(bolt: Does, tup: Tuple) -> None:
    bolt.collector.fail(tup)


@pytest.mark.parametrize(("execute", "told"), [(acks, "acked"), (refuses, "failed")])
def test_what_the_bolt_says_before_the_spout_said_anything_waits(execute: Any, told: str) -> None:
    spout = Feeder()
    net = apart(spout, Does(execute))
    spout.feed("x", id=1)
    hand_over(net, SPOUT, BOLT)
    hand_over(net, BOLT, ACKER)
    (acker,) = net.core(ACKER).ackers.values()
    assert (len(acker), early(acker) > 0, acker.answers) == (0, True, [])
    hand_over(net, SPOUT, ACKER)
    hand_over(net, ACKER, SPOUT)
    assert (spout.acked, spout.reasons) == (([1], []) if told == "acked" else ([], [(1, "failed")]))
    assert (len(acker), early(acker)) == (0, 0)


def test_an_init_that_comes_again_before_the_ack_changes_nothing() -> None:
    spout, bolt = Feeder(), Does(keeps)
    net = apart(spout, bolt)
    spout.feed("x", id=1)
    hand_over(net, SPOUT, BOLT)
    parcel = hand_over(net, SPOUT, ACKER)
    for _ in range(3):
        net.core(ACKER).receive(parcel, lambda: None)
    step(net, ACKER)
    assert SPOUT not in net.core(ACKER).close_parcels()
    net.user("bolt-1").collector.ack(bolt.kept[0])
    hand_over(net, BOLT, ACKER)
    hand_over(net, ACKER, SPOUT)
    assert (spout.acked, tracked(net)) == ([1], 0)


def test_an_answer_that_comes_after_the_timeout_is_nobodys() -> None:
    spout, bolt = Feeder(), Does(acks)
    net = apart(spout, bolt)
    spout.feed("x", id=1)
    hand_over(net, SPOUT, BOLT)
    hand_over(net, SPOUT, ACKER)
    hand_over(net, BOLT, ACKER)
    net.clock.advance(TIMEOUT_SECS)
    step(net, SPOUT)
    assert spout.reasons == [(1, "timeout")]
    spout.feed("x", id=1)
    step(net, SPOUT)
    hand_over(net, ACKER, SPOUT)
    assert spout.acked == []
    net.settle()
    assert (spout.acked, len(spout.failures), tracked(net)) == ([1], 1, 0)


def test_a_give_up_that_is_lost_does_not_keep_the_tree_for_ever() -> None:
    spout = Feeder()
    net = apart(spout, Does(keeps))
    spout.feed("x", id=1)
    hand_over(net, SPOUT, ACKER)
    net.clock.advance(TIMEOUT_SECS)
    step(net, SPOUT)
    assert net.core(SPOUT).take_parcel(ACKER).fails, "lost on its way"
    assert tracked(net) == 1
    for _ in range(3):
        net.core(ACKER).tracking.rotate()
    assert tracked(net) == 0
