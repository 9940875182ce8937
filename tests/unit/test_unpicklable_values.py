"""A value that could go to no other worker is an error where it is emitted, wherever its receiver is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

from squall.engine.core.executor import TaskCrashed
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, acks, chain


class Raises:
    """Cannot be pickled, and says so in its own way."""

    def __reduce__(self) -> Any:
        raise ValueError("not me")


def local_class() -> Any:
    class Local:
        """Of a class that no other process can find."""

    return Local()


def numbers() -> Iterator[int]:
    yield 1


VALUES = [
    (lambda: 1, "function"), (threading.Lock(), "lock"), (numbers(), "generator"), (local_class(), "Local"),
    (Raises(), "Raises"), ([{"deep": lambda: 1}], "list"),
    (memoryview(numpy.array([1, "a"], object)), "memoryview"),
]
IDS = [kind for _, kind in VALUES]


@pytest.mark.parametrize(("value", "kind"), VALUES, ids=IDS)
def test_a_spout_that_emits_it_is_told_component_stream_and_field(value: Any, kind: str) -> None:
    spout = Feeder({"out": ("id", "thing")})
    builder = chain(spout)
    builder.set_bolt("sink", Does(acks)).shuffle_grouping("spout", stream="out")
    spout.feed(1, value, id=1, stream="out")
    with pytest.raises(TaskCrashed, match=rf"spout\[\d\] stream 'out' field 'thing': a value of type .*{kind} cannot"):
        Rig(builder).settle()


@pytest.mark.parametrize(("value", "kind"), VALUES, ids=IDS)
@pytest.mark.parametrize("sinks", [1, 2])
def test_a_bolt_that_emits_it_fails_its_tuple(value: Any, kind: str, sinks: int) -> None:
    spout, middle = Feeder(), DoesBasic(lambda bolt, tup, collector: collector.emit((value,)), ("thing",))
    builder = chain(spout, middle)
    for number in range(sinks):
        builder.set_bolt(f"sink-{number}", Does(acks)).shuffle_grouping("bolt-1")
    spout.feed(1, id=1)
    rig = Rig(builder, on_error="fail")
    rig.settle()
    assert spout.reasons == [(1, "exception")]
    assert "bolt-1[2] stream 'default' field 'thing': a value of type" in spout.failures[0][1].error
    assert kind in spout.failures[0][1].error
    assert rig.tracked == 0
