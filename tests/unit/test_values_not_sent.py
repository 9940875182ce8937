"""Values that cannot be pickled or sent fail their own tuple only."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

from squall import ComponentError
from squall.engine.core.executor import TaskCrashed
from squall.engine.flow.batch import Batch
from squall.engine.flow.parcel import Parcel
from squall.ipc import codec
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, acks, chain


def things() -> tuple[Rig, Callable[[Any, Any], Batch]]:
    """A rig, and what makes a batch with one tuple of `spout`, of which the second field is `thing`."""
    builder = chain(Feeder({"out": ("id", "thing")}))
    builder.set_bolt("sink", Does(acks)).shuffle_grouping("spout", stream="out")
    rig = Rig(builder)
    (source,), (target,) = rig.plan.tasks_of("spout"), rig.plan.tasks_of("sink")
    return rig, lambda number, thing: Batch.untracked(source, "out", target, (number, thing))


@pytest.mark.parametrize("error", [ComponentError("frame of 5 bytes; max_frame_bytes allows 4"), MemoryError("none")])
def test_what_is_no_values_fault_stays_as_it_was(error: BaseException) -> None:
    rig, batch_of = things()
    parcel = Parcel()
    parcel.add(batch_of(1, "plain"))
    assert str(error) in str(rig.core.not_sent(0, parcel, error))


@pytest.mark.parametrize("size", [100, 1 << 20, 3 << 20])
@pytest.mark.parametrize("bad", [0, 1, 6])
def test_among_others_of_any_size_it_is_found(size: int, bad: int) -> None:
    rig, batch_of = things()
    waiting = Parcel()
    for number in range(7):
        waiting.add(batch_of(bytes(size), (lambda: 1) if number == bad else number))
    rig.core.put_back(0, waiting, 7 * size)
    sent: list[Any] = []
    crashes: list[str] = []
    for _ in range(100):
        if not rig.core.has_parcel(0):
            break
        parcel = rig.core.take_parcel(0)
        try:
            codec.encode(parcel)
        except ComponentError as error:
            found = rig.core.not_sent(0, parcel, error)
            crashes += [] if found is None else [str(found)]
        else:
            sent += [row[1] for batch in parcel.batches for row in batch.rows]
    assert sent == [number for number in range(7) if number != bad]
    [crash] = crashes
    assert re.fullmatch(
        r"spout\[\d\] .*stream 'out' field 'thing': a value of type function cannot be pickled, so it could not be sent"
        r".* in an emit to sink", crash,
    )


class Raises:
    """Cannot be pickled, and says so in its own way."""

    def __reduce__(self) -> Any:
        raise ValueError("not me")


class Exits:
    def __reduce__(self) -> Any:
        raise SystemExit(3)


def local_class() -> Any:
    class Local:
        """Of a class that no other process can find."""

    return Local()


def numbers() -> Iterator[int]:
    yield 1


VALUES = [
    (lambda: 1, "function"), (threading.Lock(), "lock"), (numbers(), "generator"), (local_class(), "Local"),
    (Raises(), "Raises"), (Exits(), "Exits"), ([{"deep": lambda: 1}], "list"),
    (memoryview(numpy.array([1, "a"], object)), "memoryview"),
]
EACH_VALUE = pytest.mark.parametrize(("value", "kind"), VALUES, ids=[kind for _, kind in VALUES])


@EACH_VALUE
def test_a_spout_that_emits_it_is_told_component_stream_and_field(value: Any, kind: str) -> None:
    spout = Feeder({"out": ("id", "thing")})
    builder = chain(spout)
    builder.set_bolt("sink", Does(acks)).shuffle_grouping("spout", stream="out")
    spout.feed(1, value, id=1, stream="out")
    with pytest.raises(TaskCrashed, match=rf"spout\[\d\] stream .out. field .thing.: a value of type .*{kind} cannot"):
        Rig(builder).settle()


@EACH_VALUE
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
