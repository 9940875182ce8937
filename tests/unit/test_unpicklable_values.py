"""A value that could go to no other worker is an error where it is emitted, wherever its receiver is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

from squall.engine.core.executor import TaskCrashed
from squall.engine.foreign.picklable import PickleCheck
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


def feed_two(spout: Feeder) -> None:
    """The second is in the middle of a batch, and of a type that could be pickled before."""
    spout.feed([1], id=1)
    spout.feed([lambda: 1], id=2)


def test_debug_pickles_every_value() -> None:
    spout = Feeder()
    feed_two(spout)
    Rig(chain(spout, Does(acks))).settle()
    assert spout.acked == [1, 2]
    feed_two(spout)
    with pytest.raises(TaskCrashed, match="field 'value': a value of type list cannot be pickled"):
        Rig(chain(spout, Does(acks)), debug=True).settle()


class Counts:
    pickled = 0

    def __reduce__(self) -> Any:
        Counts.pickled += 1
        return Counts, ()


def test_a_combination_of_types_is_pickled_once_per_stream() -> None:
    check = PickleCheck("a", ("x", "y"))
    for number in range(10):
        check.look((number, Counts()))
    assert Counts.pickled == 1
    check.look(("text", Counts()))
    assert Counts.pickled == 2


def test_big_values_are_not_copied_to_look_at_them() -> None:
    numpy = pytest.importorskip("numpy")
    PickleCheck("a", ("x",)).look((numpy.zeros(10),))
    PickleCheck("a", ("x",)).look((bytes(1 << 20),))
