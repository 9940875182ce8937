"""Streams, and what a bolt can read of a tuple."""

from __future__ import annotations

from typing import Any

import pytest

from squall import ComponentError, Stream, Tuple
from squall.engine.api.stream import DEFAULT_STREAM, SYSTEM_COMPONENT, TICK_STREAM, Outputs, parse_outputs
from squall.engine.api.tuple import Run, TupleSource

SOURCE = TupleSource("split", 7, "default", Stream("word", "count"))


@pytest.fixture
def tup() -> Tuple:
    return Tuple(("a", 2), SOURCE, Run(1, 2, 1))


def test_what_can_be_read_of_it(tup: Tuple) -> None:
    assert (tup[-1], tup[0:1], tup["count"], tup.select("count", "word")) == (2, ("a",), 2, (2, "a"))  # type: ignore[index]
    assert ([*tup], len(tup), tup.fields) == (["a", 2], 2, ("word", "count"))
    assert "word" in tup
    assert "a" not in tup


def test_an_unknown_field_is_named_with_component_stream_and_fields(tup: Tuple) -> None:
    for read in (lambda: tup["wrod"], lambda: tup.select("word", "wrod")):
        with pytest.raises(ComponentError, match=r"split, stream 'default', has no field 'wrod'.*word, count"):
            read()


def test_only_the_systems_tick_is_a_tick() -> None:
    for component, stream, is_tick in (
        (SYSTEM_COMPONENT, TICK_STREAM, True), ("clock", TICK_STREAM, False), (SYSTEM_COMPONENT, "default", False),
    ):
        source = TupleSource(component, -1, stream, Stream("rate_secs"))
        assert Tuple((1.0,), source, Run(0, 0, 1)).is_tick is is_tick


def test_outputs_are_names_of_fields_or_streams_by_name() -> None:
    assert parse_outputs(["word", "count"]) == {DEFAULT_STREAM: Stream("word", "count")}
    outputs: Outputs = {"default": ("line",), "bad": ["line", "why"], "to": Stream("x", direct=True)}
    streams = parse_outputs(outputs)
    assert streams == {"default": Stream("line"), "bad": Stream("line", "why"), "to": Stream("x", direct=True)}
    assert [stream.direct for stream in streams.values()] == [False, False, True]
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
