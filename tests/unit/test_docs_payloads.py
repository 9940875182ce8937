"""The file that docs/payloads.md shows, run as a reader would."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy
import pytest

from squall.engine.api.builder import TopologyBuilder
from squall.engine.api.stream import Stream
from squall.engine.api.tuple import Run, Source, Tuple
from squall.engine.errors import ComponentError, TopologyError
from squall.testing import complete_topology

PAGE = (Path(__file__).parents[2] / "docs/payloads.md").read_text()
[BLOCK] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def shown() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "thumbnails"}
    exec(compile(BLOCK, "thumbnails.py", "exec"), names)
    return names


def test_the_example_looks_at_every_frame() -> None:
    results = complete_topology(shown()["topology"]())
    assert sorted(results["brightness"]) == [(number, number) for number in range(1, 21)]


def test_zero_copy_is_true_or_false() -> None:
    names = shown()
    names["Brightness"].zero_copy = "yes"
    builder = TopologyBuilder()
    builder.set_spout("frames", names["Frames"]())
    builder.set_bolt("brightness", names["Brightness"]()).shuffle_grouping("frames")
    with pytest.raises(TopologyError, match="component 'brightness' has zero_copy = 'yes'; allowed: True or False"):
        builder.build()


def tuple_of(value: Any) -> Tuple:
    return Tuple((value,), Source("frames", 1, "default", Stream("pixels")), Run(0, 0, 1))


@pytest.mark.parametrize("value", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_a_view_is_read_only_whatever_the_value_is(value: Any) -> None:
    view = tuple_of(value).view("pixels")
    assert (type(view), view.readonly, bytes(view)) == (memoryview, True, b"abc")


@pytest.mark.parametrize("kind", [
    "M8[us]", ">m8[s]", [("Object", "M8[D]"), ("b", "S3")], [("Object", "i8")], "f4", ">i2",
])
@pytest.mark.parametrize("step", [1, -2])
def test_a_view_of_an_array_is_its_bytes_whatever_its_type(kind: Any, step: int) -> None:
    array = numpy.frombuffer(bytes(range(176)), dtype=kind)[::step]
    view = tuple_of(array).view("pixels")
    assert (view.readonly, view.tobytes(), view.shape) == (True, array.tobytes(), array.shape)
    assert numpy.shares_memory(numpy.asarray(view), array)


@pytest.mark.parametrize("array", [
    numpy.array([1, "a"], object), numpy.zeros(2, [("x", object)]),
    memoryview(numpy.array([1, "a"], object)),
], ids=["objects", "a field of objects", "view of objects"])
def test_what_has_no_bytes_has_no_view(array: Any) -> None:
    with pytest.raises(ComponentError, match="value 'pixels' of a tuple of frames has no buffer to view: it is "):
        tuple_of(array).view("pixels")


def test_a_value_without_a_buffer_has_no_view() -> None:
    with pytest.raises(ComponentError, match="value 'pixels' of a tuple of frames has no buffer to view: it is str"):
        tuple_of("abc").view("pixels")
