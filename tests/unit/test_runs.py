"""Runs: tuples that share an edge, each of which can be acked and failed on its own."""

from __future__ import annotations

from typing import Any

import pytest

from squall.engine.api.collectors import BasicCollector
from squall.engine.api.failure import Failure
from squall.engine.api.tuple import Tuple
from squall.engine.errors import FailedTuple
from tests.held import early, run_of
from tests.unit.lab import Lab, forwards, forwards_plain
from tests.unit.rig import Does, DoesBasic, acks, keeps

R1, R2, R3 = 1 << 16, 2 << 16, 3 << 16
E1, E2, E3 = 0x1111, 0x2222, 0x4444
FORWARDERS = [DoesBasic(forwards), Does(forwards_plain)]


@pytest.mark.parametrize("bolt", FORWARDERS)
def test_a_run_is_acked_when_its_last_tuple_is_done(bolt: Any) -> None:
    lab = Lab(bolt)
    lab.tree(R1, E1)
    lab.receive("abc", (R1, E1, 3))
    assert [tup.values for tup in lab.sink.kept] == [("a",), ("b",), ("c",)]
    lab.finish([0, 2])
    assert (lab.spout.acked, lab.tracked) == ([], 1)
    lab.finish([1])
    assert (lab.spout.acked, lab.tracked) == ([R1], 0)


@pytest.mark.parametrize("bolt", FORWARDERS)
def test_the_tuples_of_a_run_that_go_on_together_are_one_run_again(bolt: Any) -> None:
    lab = Lab(bolt)
    lab.tree(R1, E1)
    lab.tree(R2, E2)
    lab.receive("aab", (R1, E1, 2), (R2, E2, 1))
    a1, a2, b = lab.sink.kept
    assert run_of(a1) is run_of(a2) is not run_of(b)
    assert (run_of(a1).root, run_of(b).root) == (R1, R2)


@pytest.mark.parametrize("bolt", FORWARDERS)
def test_trees_that_alternate_stay_apart(bolt: Any) -> None:
    lab = Lab(bolt)
    lab.tree(R1, E1, E3)
    lab.tree(R2, E2)
    lab.receive("aba", (R1, E1, 1), (R2, E2, 1), (R1, E3, 1))
    lab.finish([1])
    assert lab.spout.acked == [R2]
    lab.finish([0])
    assert lab.spout.acked == [R2]
    lab.finish([2])
    assert lab.spout.acked == [R2, R1]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_each_tuple_of_a_run_can_be_failed_on_its_own(position: int) -> None:
    lab = Lab(Does(keeps))
    lab.tree(R1, E1)
    lab.tree(R2, E2)
    lab.receive("aaab", (R1, E1, 3), (R2, E2, 1))
    kept, collector = lab.bolt.kept, lab.bolt.collector
    for index in (0, 1, 2):
        (collector.fail if index == position else collector.ack)(kept[index])
        lab.settle()
    collector.ack(kept[3])
    lab.settle()
    assert lab.spout.reasons == [(R1, "failed")]
    assert lab.spout.failures[0][1] == Failure("failed", "bolt-1", lab.at, "node-1:6700")
    assert lab.spout.acked == [R2]
    assert (lab.stats().acked, lab.stats().failed) == (3, 1)


@pytest.mark.parametrize("basic", [True, False])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_failed_tuple_fails_one_tree_and_the_rest_is_executed(position: int, basic: bool) -> None:
    def fails(tup: Tuple) -> None:
        if tup[0] == "x":
            raise FailedTuple("cannot parse x")

    def plain(bolt: Does, tup: Tuple) -> None:
        fails(tup)
        acks(bolt, tup)

    lab = Lab(DoesBasic(lambda bolt, tup, collector: fails(tup)) if basic else Does(plain))
    lab.tree(R1, E1)
    lab.tree(R2, E2)
    values = ["a", "a", "a"]
    values[position] = "x"
    lab.receive("".join(values) + "b", (R1, E1, 3), (R2, E2, 1))
    assert lab.bolt.seen == [(value,) for value in (*values, "b")]
    assert lab.spout.failures == [(R1, Failure("failed", "bolt-1", lab.at, "node-1:6700", "cannot parse x"))]
    assert lab.spout.acked == [R2]
    stats = lab.stats()
    assert (stats.executed, stats.acked, stats.failed, stats.errors) == (4, 3, 1, 0)


def test_failed_tuple_after_the_ack_changes_nothing_for_the_counts() -> None:
    def execute(bolt: Does, tup: Tuple) -> None:
        bolt.collector.ack(tup)
        raise FailedTuple("too late")

    lab = Lab(Does(execute))
    lab.tree(R1, E1)
    lab.receive("a", (R1, E1, 1))
    assert len(lab.spout.acked) + len(lab.spout.failures) == 1
    assert (lab.stats().acked, lab.stats().failed) == (1, 0)


def test_a_run_may_be_done_in_any_order_and_much_later() -> None:
    lab = Lab(Does(keeps))
    lab.tree(R1, E1)
    lab.receive("abc", (R1, E1, 3))
    collector, (a, b, c) = lab.bolt.collector, lab.bolt.kept
    collector.emit(("from c",), c)
    collector.ack(c)
    lab.settle()
    collector.emit(("from a",), a)
    collector.ack(a)
    lab.settle()
    lab.finish()
    assert lab.spout.acked == []
    collector.ack(b)
    lab.settle()
    assert lab.spout.acked == [R1]
    assert (lab.tracked, early(lab.acker)) == (0, 0)


def test_what_a_failed_run_emitted_may_still_be_acked() -> None:
    lab = Lab(Does(keeps))
    lab.tree(R1, E1)
    lab.receive("ab", (R1, E1, 2))
    collector, (a, b) = lab.bolt.collector, lab.bolt.kept
    collector.emit(("x",), a)
    collector.fail(a)
    collector.emit(("y",), b)
    collector.ack(b)
    lab.settle()
    lab.finish()
    assert lab.spout.reasons == [(R1, "failed")]
    assert (lab.spout.acked, lab.tracked) == ([], 0)


# ---- runs of several trees ----


@pytest.mark.parametrize("bolt", FORWARDERS)
def test_a_run_of_two_trees_goes_on_as_one_and_acks_both(bolt: Any) -> None:
    lab = Lab(bolt)
    lab.tree(R1, E1)
    lab.tree(R2, E2)
    lab.receive("a", (R1, E1, 1), others={0: ((R2, E2),)})
    assert lab.spout.acked == []
    lab.finish()
    assert sorted(lab.spout.acked) == [R1, R2]
    assert early(lab.acker) == 0


@pytest.mark.parametrize("bolt", FORWARDERS)
def test_a_run_of_two_trees_leaves_no_mark_on_the_next(bolt: Any) -> None:
    lab = Lab(bolt)
    for root, edges in ((R1, (E1,)), (R2, (E2,)), (R3, (E3,))):
        lab.tree(root, *edges)
    lab.receive("ab", (R3, E3 ^ 1, 1), (R1, E1, 1), others={1: ((R2, E2),)})
    lab.receive("c", (R3, 1, 1))
    assert [run_of(tup).others == () for tup in lab.sink.kept] == [True, False, True]
    lab.finish([0, 2])
    assert lab.spout.acked == [R3]
    lab.finish([1])
    assert sorted(lab.spout.acked) == [R1, R2, R3]
    assert early(lab.acker) == 0


def test_a_failure_after_a_run_of_two_trees_fails_only_its_own() -> None:
    def execute(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
        if tup[0] == "x":
            raise FailedTuple

    lab = Lab(DoesBasic(execute))
    for root, edges in ((R1, (E1, 7)), (R2, (E2, 7)), (R3, (E3,))):
        lab.tree(root, *edges)
    lab.receive("a", (R1, E1, 1), others={0: ((R2, E2),)})
    lab.receive("x", (R3, E3, 1))
    assert lab.spout.reasons == [(R3, "failed")]
    assert lab.pending == 2


@pytest.mark.parametrize("bolt", FORWARDERS)
@pytest.mark.parametrize("first", ["fails", "acks"])
def test_the_same_root_joined_and_alone_are_different_runs(first: str, bolt: Any) -> None:
    lab = Lab(bolt)
    lab.tree(R1, E1, E3)
    lab.tree(R2, E2)
    lab.receive("ab", (R1, E1, 1), (R1, E3, 1), others={0: ((R2, E2),)})
    a, b = lab.sink.kept
    assert run_of(a) is not run_of(b)
    collector = lab.user("bolt-2").collector
    (collector.fail if first == "fails" else collector.ack)(b)
    collector.ack(a)
    lab.settle()
    assert sorted(lab.spout.acked) == ([R2] if first == "fails" else [R1, R2])
    assert lab.spout.reasons == ([(R1, "failed")] if first == "fails" else [])
