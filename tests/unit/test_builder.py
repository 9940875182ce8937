"""What a builder makes of a topology, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from squall.engine.api.component import BasicBolt, Bolt, Spout
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


def test_all_mistakes_are_listed_at_once() -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", Lines(), parallelism=0)
    builder.set_spout("lines", Lines())
    builder.set_spout("__hidden", Lines())
    builder.set_spout("w.results", Lines())
    builder.set_bolt("alone", Split())
    mistakes = mistakes_of(builder)
    parts = [
        "'lines' is used twice", "'lines' has parallelism 0", "'__hidden'", "'w.results'", "bolt 'alone' has no input"
    ]
    assert len(mistakes) == len(parts)
    assert [part for part in parts if part not in "\n".join(mistakes)] == []


NEEDS = Count()
NEEDS.needed_fields = ("why", "line")
FIELDS = ("fields_grouping", "partial_key_grouping")


@pytest.mark.parametrize(("bolt", "grouping", "given", "stream", "parts"), [
    (Split(), "shuffle_grouping", ["linse"], "default", ["'linse'; did you mean 'lines'?"]),
    *[(Split(), "all_grouping", ["lines"], stream, [f"unknown stream '{stream}' of 'lines'"])
      for stream in ("worse", "__system")],
    *[(Split(), by, ["lines", "line", "wordd"], "bad", ["'wordd'", "line, why"]) for by in FIELDS],
    *[(Split(), by, ["lines"], "default", ["by no field"]) for by in FIELDS],
    (Split(), "direct_grouping", ["lines"], "default", ["bolt 'x' uses direct grouping", "not declared direct"]),
    (Split(), "shuffle_grouping", ["lines"], "to", ["direct stream 'to'"]),
    *[(bolt, "shuffle_grouping", ["lines"], "default", [
        "component 'x' is ", "; allowed: an instance of Bolt, BasicBolt or BatchBolt, or a function that @bolt decor",
    ]) for bolt in (Split, Lines(), "split", None)],
    *[(type("Odd", (Split,), {"outputs": outputs})(), "shuffle_grouping", ["lines"], "default", [
        "component 'x' declares bad outputs: ", "allowed: field names",
    ]) for outputs in (5, {"default": 5}, {"default": None})],
    (NEEDS, "all_grouping", ["lines"], "default", [
        "bolt 'x' needs field 'why', which stream 'default' of 'lines' does not have; its fields: line",
    ]),
    (type("Odd", (Count,), {"needed_fields": classmethod(tuple)})(), "all_grouping", ["lines"], "default", [
        "defines needed_fields as a method",
    ]),
])
def test_a_mistake_is_named_with_what_is_allowed(
    bolt: Any, grouping: str, given: list[str], stream: str, parts: list[str]
) -> None:
    builder = good()
    getattr(builder.set_bolt("x", bolt), grouping)(*given, stream=stream)
    [mistake] = mistakes_of(builder)
    assert [part for part in parts if part not in mistake] == []


def test_fewer_tasks_than_executors_are_refused_and_fields_are_needed_of_each_input_alone() -> None:
    builder = good()
    builder.set_bolt("x", NEEDS).shuffle_grouping("lines", stream="bad")
    builder.build()
    builder.set_bolt("y", Split(), parallelism=3, tasks=2).shuffle_grouping("lines")
    assert "3 executors for 2 tasks" in mistakes_of(builder)[0]


def test_components_are_ordered_by_their_distance_from_spouts_and_what_none_feeds_comes_last() -> None:
    builder = TopologyBuilder()
    builder.set_bolt("alone", Does(acks, ("value",))).shuffle_grouping("alone")
    builder.set_bolt("z-last", Does(acks)).shuffle_grouping("a-middle")
    builder.set_bolt("a-middle", Does(acks, ("value",))).shuffle_grouping("near")
    builder.set_bolt("near", Does(acks, ("value",))).shuffle_grouping("spout").shuffle_grouping("a-middle")
    builder.set_spout("spout", Feeder())
    assert builder.build().downstream() == ["spout", "near", "a-middle", "z-last", "alone"]
