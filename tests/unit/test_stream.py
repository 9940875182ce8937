"""Streams and the ways to write a component's `outputs`."""

from __future__ import annotations

from typing import Any

import pytest

from squall.engine.api.stream import DEFAULT_STREAM, Outputs, Stream, parse_outputs


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
        ("word", r"\('word',\)"),
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
