"""What a bolt can read of a tuple."""

from __future__ import annotations

import pytest

from squall.engine.api.stream import SYSTEM_COMPONENT, TICK_STREAM, Stream
from squall.engine.api.tuple import Run, Source, Tuple
from squall.engine.errors import ComponentError

SOURCE = Source("split", 7, "default", Stream("word", "count"))


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
    assert Tuple((1.0,), Source(SYSTEM_COMPONENT, -1, TICK_STREAM, shape), Run(0, 0, 1)).is_tick
    assert not Tuple((1.0,), Source("clock", 3, TICK_STREAM, shape), Run(0, 0, 1)).is_tick
    assert not Tuple((1.0,), Source(SYSTEM_COMPONENT, -1, "default", shape), Run(0, 0, 1)).is_tick
