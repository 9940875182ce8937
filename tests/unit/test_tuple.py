"""Streams, and what a bolt can read of a tuple."""

from __future__ import annotations

from typing import Any

import pytest

from squall.engine.api.stream import DEFAULT_STREAM, SYSTEM_COMPONENT, TICK_STREAM, Outputs, Stream, parse_outputs
from squall.engine.api.tuple import Run, Tuple, TupleSource
from squall.engine.errors import ComponentError

SOURCE = TupleSource("split", 7, "default", Stream("word", "count"))


@pytest.fixture
def tup() -> Tuple:
    return Tuple(("a", 2), SOURCE, Run(1, 2, 1))


def test_values_by_position_field_and_iteration(tup: Tuple) -> None:
    assert (tup[0], tup[1], tup[-1]) == ("a", 2, 2)
    assert (tup["word"], tup["count"]) == ("a", 2)
    assert list(tup) == ["a", 2]
    assert len(tup) == 2
    assert tup.values == ("a", 2)
    assert tup[0:1] == ("a",)  # type: ignore[index]
    assert tup.select("count", "word") == (2, "a")


def test_fields_and_where_it_comes_from(tup: Tuple) -> None:
    assert tup.fields == ("word", "count")
    assert "word" in tup
    assert "a" not in tup
    assert (tup.source_component, tup.source_task, tup.source_stream) == ("split", 7, "default")
    assert not tup.is_tick


def test_an_unknown_field_is_named_with_component_stream_and_fields(tup: Tuple) -> None:
    for read in (lambda: tup["wrod"], lambda: tup.select("word", "wrod")):
        with pytest.raises(ComponentError, match=r"split, stream 'default', has no field 'wrod'.*word, count"):
            read()


def test_only_the_systems_tick_is_a_tick() -> None:
    shape = Stream("rate_secs")
    assert Tuple((1.0,), TupleSource(SYSTEM_COMPONENT, -1, TICK_STREAM, shape), Run(0, 0, 1)).is_tick
    assert not Tuple((1.0,), TupleSource("clock", 3, TICK_STREAM, shape), Run(0, 0, 1)).is_tick
    assert not Tuple((1.0,), TupleSource(SYSTEM_COMPONENT, -1, "default", shape), Run(0, 0, 1)).is_tick


def test_names_of_fields_are_the_default_stream() -> None:
    assert parse_outputs(("word", "count")) == {DEFAULT_STREAM: Stream("word", "count")}
    assert parse_outputs(["word"]) == {DEFAULT_STREAM: Stream("word")}


def test_several_streams_in_one_mapping() -> None:
    outputs: Outputs = {"default": ("line",), "bad": ["line", "why"], "to": Stream("x", direct=True)}
    streams = parse_outputs(outputs)
    assert list(streams) == ["default", "bad", "to"]
    assert streams["bad"].fields == ("line", "why")
    assert not streams["bad"].direct
    assert streams["to"].direct
    assert streams["bad"].index == {"line": 0, "why": 1}


@pytest.mark.parametrize(
    ("outputs", "named"),
    [
        ("word", "'word'; allowed: field names"),
        ({"bad": "word"}, "'bad'.*'word'"),
        ({"": ("word",)}, "stream name"),
        ({5: ("word",)}, "stream name.*5"),
        (("word", "word"), "word, word"),
        (("word", ""), "non-empty"),
        (("word", 5), "5"),
    ],
)
def test_wrong_outputs_are_refused_by_name(outputs: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse_outputs(outputs)
