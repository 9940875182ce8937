"""The order in which a worker's bolts get their turns."""

from __future__ import annotations

from squall.engine.api.builder import TopologyBuilder
from tests.unit.rig import Does, Feeder, acks


def test_components_are_ordered_by_their_distance_from_spouts() -> None:
    builder = TopologyBuilder()
    builder.set_bolt("z-last", Does(acks)).shuffle_grouping("a-middle")
    builder.set_bolt("a-middle", Does(acks, ("value",))).shuffle_grouping("near")
    builder.set_bolt("near", Does(acks, ("value",))).shuffle_grouping("spout").shuffle_grouping("a-middle")
    builder.set_spout("spout", Feeder())
    assert builder.build().downstream() == ["spout", "near", "a-middle", "z-last"]


def test_a_cycle_that_no_spout_feeds_comes_last() -> None:
    builder = TopologyBuilder()
    builder.set_bolt("alone", Does(acks, ("value",))).shuffle_grouping("alone")
    builder.set_bolt("bolt", Does(acks)).shuffle_grouping("spout")
    builder.set_spout("spout", Feeder())
    assert builder.build().downstream() == ["spout", "bolt", "alone"]
