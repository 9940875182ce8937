"""What a builder makes of a topology, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from squall.engine.api.component import BasicBolt, Bolt, CustomGrouping, Spout
from squall.engine.api.stream import Stream
from squall.engine.build.builder import TopologyBuilder
from squall.engine.errors import TopologyError, UsageError
from tests.unit.rig import Does, Feeder, acks


class Lines(Spout):
    outputs = {"default": ("line",), "bad": ("line", "why"), "to": Stream("x", direct=True)}  # noqa: RUF012


class Split(BasicBolt):
    outputs = ("word",)


class Count(Bolt):
    outputs = ("word", "count")


def good() -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("lines", Lines())
    builder.set_bolt("split", Split(), parallelism=2, tasks=4).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", "word")
    return builder


def mistakes_of(builder: TopologyBuilder) -> tuple[str, ...]:
    with pytest.raises(TopologyError) as refused:
        builder.build()
    assert isinstance(refused.value, UsageError)
    for mistake in refused.value.mistakes:
        assert "\n" not in mistake
        assert mistake in str(refused.value)
    return refused.value.mistakes


def only_mistake_of(builder: TopologyBuilder) -> str:
    mistakes = mistakes_of(builder)
    assert len(mistakes) == 1, mistakes
    return mistakes[0]


def test_a_good_topology_is_built_as_declared() -> None:
    topology = good().build()
    assert list(topology.components) == ["lines", "split", "count"]
    assert (topology["split"].executors, topology["split"].tasks) == (2, 4)
    assert (topology["count"].executors, topology["count"].tasks) == (2, 2)
    assert [spec.id for spec in topology.spouts] == ["lines"]
    assert [spec.id for spec, _ in topology.subscribers("split", "default")] == ["count"]
    assert topology.layout(2) == [
        ("lines", "spout", 1, 1), ("split", "bolt", 4, 2), ("count", "bolt", 2, 2), ("__acker", "acker", 2, 2)
    ]
    assert ("__acker", "acker", 0, 0) not in topology.layout(0)


def test_every_grouping_can_be_declared() -> None:
    builder = good()
    (
        builder.set_bolt("all", Count())
        .shuffle_grouping("lines")
        .local_or_shuffle_grouping("lines", stream="bad")
        .partial_key_grouping("lines", "line", "why", stream="bad")
        .all_grouping("split")
        .global_grouping("count")
        .none_grouping("count")
        .direct_grouping("lines", stream="to")
        .custom_grouping("split", CustomGrouping())
    )
    groupings = [subscription.grouping for subscription in builder.build()["all"].subscriptions]
    assert groupings == [
        "shuffle", "local_or_shuffle", "partial_key", "all", "global", "none", "direct", "custom"
    ]


def test_all_mistakes_are_listed_at_once() -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", Lines(), parallelism=0)
    builder.set_spout("lines", Lines())
    builder.set_spout("__hidden", Lines())
    builder.set_bolt("component", Split()).shuffle_grouping("linse")
    builder.set_bolt("stream", Split()).shuffle_grouping("lines", stream="worse")
    builder.set_bolt("field", Split()).fields_grouping("lines", "lane")
    builder.set_bolt("direct", Split()).direct_grouping("lines")
    builder.set_bolt("tasks", Split(), parallelism=3, tasks=2).shuffle_grouping("lines")
    builder.set_bolt("alone", Split())
    text = "\n".join(mistakes_of(builder))
    for part in (
        "'lines' has parallelism 0", "'lines' is used twice", "'__hidden'", "'linse'; did you mean 'lines'?",
        "'worse' of 'lines'", "'lane'", "bolt 'direct' uses direct grouping on stream 'default'",
        "3 executors for 2 tasks", "bolt 'alone' has no input",
    ):
        assert part in text
    assert len(text.split("\n")) == 9


@pytest.mark.parametrize("grouping", ["fields_grouping", "partial_key_grouping"])
def test_an_unknown_field_and_no_field_are_named(grouping: str) -> None:
    builder = good()
    getattr(builder.set_bolt("x", Split()), grouping)("lines", "line", "wordd", stream="bad")
    mistake = only_mistake_of(builder)
    assert "'wordd'" in mistake
    assert "line, why" in mistake
    builder = good()
    getattr(builder.set_bolt("x", Split()), grouping)("lines")
    assert "by no field" in only_mistake_of(builder)


def test_direct_grouping_and_direct_streams_go_together() -> None:
    builder = good()
    builder.set_bolt("x", Split()).direct_grouping("lines")
    assert "not declared direct" in only_mistake_of(builder)
    builder = good()
    builder.set_bolt("x", Split()).shuffle_grouping("lines", stream="to")
    assert "direct stream 'to'" in only_mistake_of(builder)


@pytest.mark.parametrize("component", [Split, Lines(), "split", None])
def test_what_is_no_bolt_is_refused(component: Any) -> None:
    builder = good()
    builder.set_bolt("x", component).shuffle_grouping("lines")
    mistake = only_mistake_of(builder)
    assert mistake.startswith("component 'x' is ")
    assert "; allowed: an instance of Bolt, BasicBolt or BatchBolt, or a function that @bolt decorates" in mistake


@pytest.mark.parametrize("outputs", [5, {"default": 5}, {"default": None}])
def test_odd_outputs_are_refused_with_their_value(outputs: Any) -> None:
    bolt, builder = Split(), good()
    bolt.outputs = outputs
    builder.set_bolt("x", bolt).shuffle_grouping("lines")
    mistake = only_mistake_of(builder)
    assert "component 'x' declares bad outputs: " in mistake
    assert "allowed: field names" in mistake


def test_fields_that_a_bolt_needs_are_in_each_of_its_inputs() -> None:
    bolt = Count()
    bolt.needed_fields = ("why", "line")
    builder = good()
    builder.set_bolt("x", bolt).shuffle_grouping("lines", stream="bad").shuffle_grouping("lines")
    assert only_mistake_of(builder) == (
        "bolt 'x' needs field 'why', which stream 'default' of 'lines' does not have; its fields: line"
    )


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
