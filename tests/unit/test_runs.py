"""Runs: tuples that share an edge, each of which can be acked and failed on its own."""

from __future__ import annotations

from typing import Any

import pytest

from squall.engine.api.failure import Failure
from squall.engine.api.tuple import Tuple
from squall.engine.errors import FailedTuple
from tests.held import early
from tests.unit.lab import Lab, forwards, forwards_plain
from tests.unit.rig import Does, DoesBasic, acks, keeps

R1, R2, R3 = 1 << 16, 2 << 16, 3 << 16
E1, E2, E3 = 0x1111, 0x2222, 0x4444
FORWARDERS = [DoesBasic(forwards), Does(forwards_plain)]


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
